// The traps' device code as PTX text.
__asm__(".section .rodata\n.global traps_ptx\ntraps_ptx:\n.incbin \"" TRAPS_PTX "\"\n.byte 0\n.previous\n");
