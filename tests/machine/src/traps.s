# An entry for each vector, at equal distances, and what they have in common: saves all that Rust code may change, calls
# `machine_trap`, restores, returns. Runs on a stack of its own (see `traps.rs`), so the interrupted function's red zone is
# safe.

.pushsection .text.traps, "ax", @progbits

.balign {distance}
.global trap_entries
trap_entries:
.set vector, 0
.rept {vectors}
    .balign {distance}
    # These bring an error code; for the others a 0 stands in.
    .if !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21 || vector == 29 || vector == 30)
    pushq $0
    .endif
    pushq $vector
    jmp trap
    .set vector, vector + 1
.endr

.balign 16
trap:
    pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    # The processor aligned the stack to 16 and pushed 5 words; with the 11 above it is aligned again.
    leaq 72(%rsp), %rdi                 # the `Trap`: vector, error code and what the processor has pushed
    subq $512, %rsp
    fxsaveq (%rsp)
    cld                                 # it may have come upon a backward copy
    call machine_trap
    fxrstorq (%rsp)
    addq $512, %rsp
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %rax
    addq $16, %rsp
    iretq

.popsection
