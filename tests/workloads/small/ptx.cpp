// The PTX of kernels.cu as text in the program.
asm(R"(
  .section .rodata
  .global small_ptx
small_ptx:
  .incbin ")" SMALL_PTX R"("
  .byte 0
  .previous
)");
