// The PTX of kernels.cu as text in the library.
asm(R"(
  .section .rodata
  .global math_ptx
  .hidden math_ptx
math_ptx:
  .incbin ")" MATH_PTX R"("
  .byte 0
  .previous
)");
