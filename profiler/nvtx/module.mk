$(call library,nvtx,$(wildcard profiler/nvtx/*.cpp))
