# From the first instruction of each processor to Rust: a stack, page tables, long mode.
#
# The first processor comes here as the PVH note says: 32-bit protected mode, no paging, ebx = address of the start info. The
# others are woken by `processors.rs` in real mode, at the page that the trampoline was copied to. In memory then lie
#
#   0 .. 4 GiB                            physical = virtual; not there: the lowest page of each stack, and soon page 0
#   0xffff_8000_0000_0000 .. + 4 GiB      the same once more, in the higher half

.set STACK_SHIFT, 18                    # 256 KiB a processor
.set MAX_CPUS, {max_cpus}               # all their stacks fill one page of 2 MiB
.set TRAMPOLINE, {trampoline}           # where `processors.rs` copies it to
.set PAGE, 0x03                         # present, writable
.set LARGE, 0x83                        # the same, 2 MiB
.set DEVICE, 0x9b                       # the same, not cached

.pushsection .note.Xen, "a", @note
.balign 4
.long 4, 8, 18                          # length of the name, of the value, XEN_ELFNOTE_PHYS32_ENTRY
.asciz "Xen"
.quad pvh_start
.popsection

.pushsection .text.start, "ax", @progbits

.code32
.global pvh_start
pvh_start:
    cli
    cld
    movl %ebx, %edi                     # the argument of `machine_start`
    movl $stacks + (1 << STACK_SHIFT), %esp
    movl $low_table + PAGE, directory   # the two pages of 2 MiB with holes have tables of their own
    movl $stacks, %eax
    shrl $21, %eax
    movl $stack_table + PAGE, directory(,%eax,8)
    call enter_long_mode
    lgdt first_gdt_pointer
    ljmp $0x08, $first

enter_long_mode:
    movl %cr4, %eax
    orl $0x620, %eax                    # PAE, OSFXSR, OSXMMEXCPT
    movl %eax, %cr4
    movl $top_table, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx              # EFER
    rdmsr
    orl $0x100, %eax                    # LME
    wrmsr
    movl %cr0, %eax
    andl $0xfffffffb, %eax              # EM off: there is SSE
    orl $0x80000003, %eax               # PG, MP, PE
    movl %eax, %cr0
    ret

.code64
first:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movq $stacks + (1 << STACK_SHIFT), %rsp
    movl %edi, %edi                     # what 32-bit code leaves above is not defined
    call machine_start
1:  hlt
    jmp 1b

.code16
.global trampoline
.global trampoline_end
trampoline:
    cli
    cld
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl TRAMPOLINE + (trampoline_gdt_pointer - trampoline)
    movl %cr0, %eax
    orl $1, %eax                        # PE
    movl %eax, %cr0
    ljmpl $0x18, $other
.balign 8
trampoline_gdt_pointer:
    .word first_gdt_end - first_gdt - 1
    .long first_gdt
trampoline_end:

.code32
other:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl $1, %edi                       # the argument of `machine_join`: 1, 2, ... in the order of arrival
    lock xaddl %edi, arrivals
    cmpl $MAX_CPUS, %edi
    jae 1f                              # no stack for it: `processors.rs` refuses to start so many
    leal 1(%edi), %esp
    shll $STACK_SHIFT, %esp
    addl $stacks, %esp
    call enter_long_mode
    ljmp $0x08, $other_long
1:  hlt
    jmp 1b

.code64
other_long:
    movl %edi, %edi
    movl %esp, %esp
    call machine_join
1:  hlt
    jmp 1b

.popsection

.pushsection .data.start, "aw", @progbits
.balign 8
first_gdt:                              # until `traps.rs` loads one with a task state
    .quad 0
    .quad 0x00af9a000000ffff            # 0x08 code, 64-bit
    .quad 0x00cf92000000ffff            # 0x10 data
    .quad 0x00cf9a000000ffff            # 0x18 code, 32-bit
first_gdt_end:
first_gdt_pointer:
    .word first_gdt_end - first_gdt - 1
    .quad first_gdt
.balign 4
arrivals:
    .long 1

.balign 4096
top_table:
    .quad upper_table + PAGE            # from 0
    .fill 255, 8, 0
    .quad upper_table + PAGE            # from 0xffff_8000_0000_0000
    .fill 255, 8, 0
upper_table:
    .quad directory + PAGE, directory + 0x1000 + PAGE, directory + 0x2000 + PAGE, directory + 0x3000 + PAGE
    .fill 508, 8, 0
directory:                              # QEMU has no memory from 3 to 4 GiB, but its devices
    .set place, 0
    .rept 2048
    .if place < 3 << 30
    .quad place + LARGE
    .else
    .quad place + DEVICE
    .endif
    .set place, place + 0x200000
    .endr
.global low_table
low_table:
    .set place, 0
    .rept 512
    .quad place + PAGE
    .set place, place + 0x1000
    .endr
stack_table:
    .set place, 0
    .rept 512
    .if place & ((1 << STACK_SHIFT) - 1)
    .quad stacks + place + PAGE
    .else
    .quad 0
    .endif
    .set place, place + 0x1000
    .endr
.popsection

.pushsection .bss.stacks, "aw", @nobits
.balign 0x200000
stacks:
    .skip MAX_CPUS << STACK_SHIFT
.popsection
