$(call library,math_calls,$(wildcard profiler/math/*.cpp))
# The versions of internal.hpp, for the version script of who links it, behind another one: of a script's first version the loader takes
# any symbol for a reference without a version.
MATH_VERSIONS := UDNNMEM $(foreach library,libcublas libcublasLt,$(addprefix $(library).so.,11 12 13)) libcudnn.so.8 libcudnn.so.9
