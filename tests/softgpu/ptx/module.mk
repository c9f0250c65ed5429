# The PTX translator of the software GPU.
$(call library,softgpu_ptx,$(call together,$(addprefix tests/softgpu/ptx/,types.cpp lexer.cpp special.cpp parser.cpp parser_body.cpp \
  analysis.cpp flatten.cpp coder.cpp code_arithmetic.cpp code_float.cpp code_bits.cpp code_convert.cpp code_memory.cpp \
  code_atomic.cpp code_control.cpp code_warp.cpp translate.cpp compile.cpp module.cpp launch.cpp schedule.cpp pool.cpp print.cpp)))

$(B)/softgpu-test/%.ptx: tests/softgpu/ptx/test/%.cu tests/softgpu/ptx/test/shared_math.hpp
	@mkdir -p $(@D)
	@echo "  nvcc  $<"
	@$(NVCC) -ptx -arch=compute_75 -std=c++17 --fmad=false -o $@ $<

$(call objects,$(BUILD)/gen/tests/unit-ptx.cpp): CXXFLAGS += -ffp-contract=off -frounding-math -fwrapv
$(call unit_test,ptx,$(addprefix tests/softgpu/ptx/test/,arithmetic_test.cpp execution_test.cpp instruction_test.cpp refusal_test.cpp),softgpu_ptx)
$(B)/tests/unit-ptx: | $(B)/softgpu-test/kernels.ptx
