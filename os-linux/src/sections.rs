//! The restartable sections on one core's lists. Called by `lists.rs`; rest on the layouts of `board.rs` and the core's
//! `slab.rs`, and on the words of its `chain.rs`.
//!
//! ```text
//!            lea   t, descriptor                      what the kernel is to know: begin, length, abort address
//!            mov   fs:[area + SECTION], t
//!   begin    mov   t, fs:[area + CORE]                the core; -1 where the thread is not registered
//!            cmp   t, CORES;  jae miss
//!            mov   t, [board + t × 8 + ENTRIES]       0 leads to the empty slab, which misses
//!              …   [t + slot]                         `slot` = board + class × 16, so t + slot is the slab's slot
//!            mov   [t + slot], new word               the commit: one store, the last instruction
//!   end
//!   abort    (in .text.unlikely, behind the signature) the same as a miss
//! ```
//!
//! An abort is a miss and not a new try: trying again never ends under a debugger that steps by instruction.
//! Invariants: `A1` a section stores to shared memory once, by its last instruction; `A2` it makes no call and no system call;
//! `A3` whatever it reads through a list's first block is used only if the section commits: until then the block is in the
//! list.
//!
//! The descriptors and abort stubs live in sections of their own; where the compiler duplicates a block, it duplicates them
//! too.

use crate::board::{Board, CORES, ENTRIES};
use crate::rseq::{CORE, SECTION, SIGNATURE};
use core::arch::asm;
use core::mem::{offset_of, size_of};
use freestone_core::{SizeClass, Slot};

/// Up to the load of the core's entry into `{t}`; leaves for `6` where there is no core.
macro_rules! begin {
    () => {
        concat!(
            ".pushsection .data.rel.ro.freestone_rseq, \"aw\", @progbits\n",
            ".balign 32\n",
            "77: .long 0, 0\n",
            ".quad 3f, 4f - 3f, 5f\n",
            ".popsection\n",
            "lea {t}, [rip + 77b]\n",
            "mov qword ptr fs:[{area} + {section}], {t}\n",
            "3:\n",
            "mov {t:e}, dword ptr fs:[{area} + {core}]\n",
            "cmp {t:e}, {cores}\n",
            "jae 6f\n",
            "mov {t}, qword ptr [{board} + {t} * 8 + {entries}]",
        )
    };
}

/// The end, and the stub for aborts (`5`) and misses (`6`).
macro_rules! end {
    ($on_miss:literal) => {
        concat!(
            "4:\n",
            ".pushsection .text.unlikely.freestone_rseq, \"ax\", @progbits\n",
            ".byte 0x0f, 0xb9, 0x3d\n", // with the signature one invalid instruction, so that nobody jumps here by chance
            ".long {signature}\n",
            "5:\n",
            "6:\n",
            $on_miss,
            "\n.popsection",
        )
    };
}

/// The address that, added to an entry, is that of the slot of `class`.
#[inline(always)]
fn slot_base(board: &Board, class: SizeClass) -> *const u8 {
    (&raw const *board).cast::<u8>().wrapping_add(class.index() * size_of::<Slot>())
}

/// Takes the first block of this core's list; null on a miss.
///
/// # Safety
/// `area` is the offset of this process's rseq area; the lists of `board` are used by sections only.
#[inline(always)]
pub(crate) unsafe fn pop(area: isize, board: &Board, class: SizeClass) -> *mut u8 {
    let block: *mut u8;
    // SAFETY: the section reads the head and, while the block is in the list, its link, and stores the link as the head
    // (`A1`, `A3`): the block is out, and is the caller's.
    unsafe {
        asm!(
            begin!(),
            "mov {block}, qword ptr [{t} + {slot}]",
            "shr {block}, 16",
            "jz 4f",
            "mov {next}, qword ptr [{block}]",
            "mov qword ptr [{t} + {slot}], {next}",
            end!("xor {block:e}, {block:e}\njmp 4b"),
            area = in(reg) area, board = in(reg) board, slot = in(reg) slot_base(board, class),
            t = out(reg) _, next = out(reg) _, block = out(reg) block,
            core = const CORE, section = const SECTION, cores = const CORES, entries = const ENTRIES,
            signature = const SIGNATURE, options(nostack),
        );
    }
    block
}

/// Puts `block` on this core's list; `false` on a miss, and then nothing but the block's first word has changed.
///
/// # Safety
/// As for [`pop`]; the block is free, the caller's, and given up by a success.
#[inline(always)]
pub(crate) unsafe fn push(area: isize, board: &Board, class: SizeClass, block: *mut u8) -> bool {
    // SAFETY: the section writes the block's first word, which is the caller's, and the head (`A1`). The empty slab's limit is
    // 0, so nothing is written there. The count is below the limit, so it fits its 16 bits.
    unsafe {
        asm!(
            begin!(),
            "mov {head}, qword ptr [{t} + {slot}]",
            "movzx {count:e}, {head:x}",
            "cmp {count:x}, word ptr [{t} + {slot} + {limit}]",
            "jae 6f",
            "mov qword ptr [{block}], {head}",
            "lea {count}, [{count} + {word} + 1]",
            "mov qword ptr [{t} + {slot}], {count}",
            end!("jmp {miss}"),
            area = in(reg) area, board = in(reg) board, slot = in(reg) slot_base(board, class),
            block = in(reg) block, word = in(reg) block.expose_provenance() << 16,
            t = out(reg) _, head = out(reg) _, count = out(reg) _, miss = label { return false },
            limit = const offset_of!(Slot, limit), core = const CORE, section = const SECTION, cores = const CORES,
            entries = const ENTRIES, signature = const SIGNATURE, options(nostack),
        );
    }
    true
}

/// Takes this core's whole list: its word, 0 on a miss.
///
/// # Safety
/// As for [`pop`].
#[inline(always)]
pub(crate) unsafe fn take_all(area: isize, board: &Board, class: SizeClass) -> usize {
    let word: usize;
    // SAFETY: the section reads the head and stores 0 (`A1`); it leaves where there is no slab (`B1`).
    unsafe {
        asm!(
            begin!(),
            "test {t}, {t}",
            "jz 6f",
            "mov {word}, qword ptr [{t} + {slot}]",
            "mov qword ptr [{t} + {slot}], 0",
            end!("xor {word:e}, {word:e}\njmp 4b"),
            area = in(reg) area, board = in(reg) board, slot = in(reg) slot_base(board, class),
            t = out(reg) _, word = out(reg) word,
            core = const CORE, section = const SECTION, cores = const CORES, entries = const ENTRIES,
            signature = const SIGNATURE, options(nostack),
        );
    }
    word
}

/// Makes `word` this core's list if that is empty; `false` on a miss.
///
/// # Safety
/// As for [`pop`]; the chain of `word` is the caller's, and given up by a success.
#[inline(always)]
pub(crate) unsafe fn put_chain(area: isize, board: &Board, class: SizeClass, word: usize) -> bool {
    // SAFETY: the section stores the head, once, after it has read 0 there (`A1`); it leaves where there is no slab (`B1`).
    unsafe {
        asm!(
            begin!(),
            "test {t}, {t}",
            "jz 6f",
            "cmp qword ptr [{t} + {slot}], 0",
            "jne 6f",
            "mov qword ptr [{t} + {slot}], {word}",
            end!("jmp {miss}"),
            area = in(reg) area, board = in(reg) board, slot = in(reg) slot_base(board, class), word = in(reg) word,
            t = out(reg) _, miss = label { return false },
            core = const CORE, section = const SECTION, cores = const CORES, entries = const ENTRIES,
            signature = const SIGNATURE, options(nostack),
        );
    }
    true
}
