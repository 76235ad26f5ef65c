//! The restartable sections on one core's lists. Called by `lists.rs`; rest on the layouts of `board.rs` and the core's
//! `slab.rs`, and on the words of its `chain.rs`.
//!
//! ```text
//!            lea     rcx, descriptor                 what the kernel is to know: begin, length, abort address
//!            mov     fs:[area + SECTION], rcx
//!   begin    movsxd  rcx, fs:[area + CORE]           the core; below 0 where the thread is not registered
//!            shl     rcx, SHIFT
//!            add     rcx, board                      the core's page
//!            cmp     [rcx + OPEN], 0                 no slab, or parked
//!            je      miss
//!              …     [rcx + rdx]                     `rdx` = class × 16, so this is the slab's slot
//!            mov     [rcx + rdx], new word           the commit: one store, the last instruction
//!   end
//!   abort    (in .text.unlikely, behind the signature) the same as a miss
//! ```
//!
//! The slot is addressed by the same two registers in every section: processors that forward a store to a later load by the
//! names in its address (Zen's do) then need no cycle for it.
//!
//! An abort is a miss and not a new try: trying again never ends under a debugger that steps by instruction.
//! Invariants: `A1` a section stores to shared memory once, by its last instruction; `A2` it makes no call and no system call;
//! `A3` whatever it reads through a list's first block is used only if the section commits: until then the block is in the
//! list.
//!
//! The descriptors and abort stubs live in sections of their own; where the compiler duplicates a block, it duplicates them
//! too.

use crate::board::{Board, OPEN, SHIFT};
use crate::rseq::{CORE, SECTION, SIGNATURE};
use core::arch::asm;
use core::mem::offset_of;
use freestone_core::{SizeClass, Slot};

/// Up to the core's page in `rcx`; leaves for `6` where its slab is not open.
macro_rules! begin {
    () => {
        concat!(
            ".pushsection .data.rel.ro.freestone_rseq, \"aw\", @progbits\n",
            ".balign 32\n",
            "77: .long 0, 0\n",
            ".quad 3f, 4f - 3f, 5f\n",
            ".popsection\n",
            "lea rcx, [rip + 77b]\n",
            "mov qword ptr fs:[{area} + {section}], rcx\n",
            "3:\n",
            "movsxd rcx, dword ptr fs:[{area} + {core}]\n",
            "shl rcx, {shift}\n",
            "add rcx, {board}\n",
            "cmp dword ptr [rcx + {open}], 0\n",
            "je 6f",
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
            "mov rax, qword ptr [rcx + rdx]",
            "shr rax, 16",
            "jz 4f",
            "mov {next}, qword ptr [rax]",
            "mov qword ptr [rcx + rdx], {next}",
            end!("xor eax, eax\njmp 4b"),
            area = in(reg) area, board = in(reg) board,
            next = out(reg) _,
            core = const CORE, section = const SECTION, shift = const SHIFT, open = const OPEN,
            signature = const SIGNATURE, in("rdx") class.slot_offset(), out("rcx") _, out("rax") block, options(nostack),
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
    // SAFETY: the section writes the block's first word, which is the caller's, and the head (`A1`). The count is below the limit, so it fits its 16 bits.
    unsafe {
        asm!(
            begin!(),
            "mov {head}, qword ptr [rcx + rdx]",
            "movzx {count:e}, {head:x}",
            "cmp {count:x}, word ptr [rcx + rdx + {limit}]",
            "jae 6f",
            "mov qword ptr [rax], {head}",
            "lea {count}, [{count} + {word} + 1]",
            "mov qword ptr [rcx + rdx], {count}",
            end!("jmp {miss}"),
            area = in(reg) area, board = in(reg) board,
            word = in(reg) block.expose_provenance() << 16,
            head = out(reg) _, count = out(reg) _, miss = label { return false },
            limit = const offset_of!(Slot, limit), core = const CORE, section = const SECTION, shift = const SHIFT, open = const OPEN,
            signature = const SIGNATURE, in("rdx") class.slot_offset(), out("rcx") _, in("rax") block, options(nostack),
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
    // SAFETY: the section reads the head and stores 0 (`A1`); it leaves where the slab is not open (`B1`).
    unsafe {
        asm!(
            begin!(),
            "mov {word}, qword ptr [rcx + rdx]",
            "mov qword ptr [rcx + rdx], 0",
            end!("xor {word:e}, {word:e}\njmp 4b"),
            area = in(reg) area, board = in(reg) board,
            word = out(reg) word,
            core = const CORE, section = const SECTION, shift = const SHIFT, open = const OPEN,
            signature = const SIGNATURE, in("rdx") class.slot_offset(), out("rcx") _, options(nostack),
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
    // SAFETY: the section stores the head, once, after it has read 0 there (`A1`); it leaves where the slab is not open (`B1`).
    unsafe {
        asm!(
            begin!(),
            "cmp qword ptr [rcx + rdx], 0",
            "jne 6f",
            "mov qword ptr [rcx + rdx], {word}",
            end!("jmp {miss}"),
            area = in(reg) area, board = in(reg) board,
            word = in(reg) word, miss = label { return false },
            core = const CORE, section = const SECTION, shift = const SHIFT, open = const OPEN,
            signature = const SIGNATURE, in("rdx") class.slot_offset(), out("rcx") _, options(nostack),
        );
    }
    true
}
