// The PTX of kernels.cu as text in the program.
asm(R"(
  .section .rodata
  .global replays_ptx
replays_ptx:
  .incbin ")" REPLAYS_PTX R"("
  .byte 0
  .previous
)");
