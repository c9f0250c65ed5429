$(call library,fmt,profiler/format/fmt.cpp)
