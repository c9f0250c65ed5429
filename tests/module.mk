$(call library,catch_main,tests/catch_main.cpp)
