// How the program's NVTX calls come to us. Each shared object that uses NVTX holds a table of functions of its own, and at its
// first call asks the library that NVTX_INJECTION64_PATH names (InitializeInjectionNvtx2) to fill it in.
#pragma once

namespace udnnmem::profiler::nvtx {

// For the library's constructor: puts `library` (its own file) into NVTX_INJECTION64_PATH. A tool that is named there is
// remembered in NVTX_INJECTION64_PATH_NEXT, for child processes too, and gets every call. Writes to the environment directly:
// a shell's own setenv() is not ready yet.
void inject(const char* library) noexcept;

// While a thread makes the first NVTX call of the library itself: its calls go to the other tool alone, or nowhere.
class OwnClient {
  public:
    OwnClient() noexcept;
    ~OwnClient();
    OwnClient(const OwnClient&) = delete;
    OwnClient& operator=(const OwnClient&) = delete;
};

}  // namespace udnnmem::profiler::nvtx
