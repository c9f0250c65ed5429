$(call library,nvtx,$(call together,$(wildcard profiler/nvtx/*.cpp)))
