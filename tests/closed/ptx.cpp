// The kernels as PTX text.
__asm__(".section .rodata\n.global closed_ptx\n.hidden closed_ptx\nclosed_ptx:\n.incbin \"" CLOSED_PTX "\"\n.byte 0\n.previous\n");
