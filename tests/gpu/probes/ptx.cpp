// The probes' kernels as PTX text: for every card, for sm_80 and later, for sm_90 and later.
#define TEXT(name, file) __asm__(".section .rodata\n.global " name "\n" name ":\n.incbin \"" file "\"\n.byte 0\n.previous\n");
TEXT("probe_ptx", PROBE_PTX "/kernels.ptx")
TEXT("host_ops_75_ptx", PROBE_PTX "/host_ops_75.ptx")
TEXT("host_ops_80_ptx", PROBE_PTX "/host_ops_80.ptx")
TEXT("host_ops_90_ptx", PROBE_PTX "/host_ops_90.ptx")
