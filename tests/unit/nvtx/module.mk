$(call unit_test,nvtx,$(wildcard tests/unit/nvtx/*.cpp),nvtx,-ldl)
