// Traps: memory shared between two processes by CUDA's own handles, each process with the library or without it (under the
// suite; alone neither has it). With it on both sides memory is shared; a process without it cannot open a handle of ours, and
// is given the words by a pipe, as in a program that minds the error. What is the driver's is opened under the library as without.
#include "tests/e2e/traps/traps.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace traps {
namespace {

void put(int fd, const void* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = write(fd, static_cast<const char*>(data) + done, bytes - done);
    if (n <= 0) exit(4);
    done += static_cast<size_t>(n);
  }
}
void get(int fd, void* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::read(fd, static_cast<char*>(data) + done, bytes - done);
    if (n <= 0) exit(5);
    done += static_cast<size_t>(n);
  }
}

// A buffer, and a small allocation that shares its memory with others.
constexpr unsigned kShared[] = {kWords, 1000};

// Shares them, pushes everything out, and reads what the other side has added. True if the other could open them.
bool own(World& w, int in, int out) {
  const CUstream s = w.stream();
  CUdeviceptr at[2];
  bool all_opened = true;
  for (int i = 0; i < 2; ++i) {
    at[i] = w.stepped(kShared[i], 7 + static_cast<unsigned>(i));
    w.press(s);
    CUipcMemHandle handle{};
    bool shared = cuIpcGetMemHandle(&handle, at[i] + 4 * kStride % (kShared[i] * 4)) == CUDA_SUCCESS, opened;
    put(out, &shared, sizeof shared);
    put(out, &handle, sizeof handle);
    w.press(s);
    get(in, &opened, sizeof opened);
    std::vector<unsigned> words;
    if (!opened) words = traps::read(at[i], kShared[i]), put(out, words.data(), words.size() * 4);
    w.press(s);
    char done;
    get(in, &done, 1);
    if (!opened) {
      get(in, words.data(), words.size() * 4);
      CHECK(cuMemcpyHtoD(at[i], words.data(), words.size() * 4));
    }
    w.press(s);
    tell("owner reads", traps::read(at[i], kShared[i]));
    launch_wide(s, w.add, at[i], at[i], at[i], kShared[i]);
    CHECK(cuStreamSynchronize(s));
    put(out, &done, 1);
    get(in, &done, 1);
    all_opened = all_opened && opened;
  }
  for (CUdeviceptr x : at) CHECK(cuMemFree(x));
  w.press(s);
  return all_opened;
}

// Opens them, or is given the words, and doubles them; sees what the owner writes then.
bool borrow(World& w, int in, int out) {
  const CUstream s = w.stream();
  bool all_opened = true;
  for (unsigned n : kShared) {
    bool shared;
    CUipcMemHandle handle;
    get(in, &shared, sizeof shared);
    get(in, &handle, sizeof handle);
    CUdeviceptr x = 0, again = 0, base = 0;
    size_t bytes = 0;
    const bool opened = shared && cuIpcOpenMemHandle(&x, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS;
    put(out, &opened, sizeof opened);
    std::vector<unsigned> words(n);
    if (!opened) {
      get(in, words.data(), words.size() * 4);
      x = w.allocate(n * 4ul);
      CHECK(cuMemcpyHtoD(x, words.data(), words.size() * 4));
    } else {
      CHECK(cuMemGetAddressRange(&base, &bytes, x + 4));
      if (base != x || bytes < n * 4ul) exit(7);
      CHECK(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));  // counted
      CHECK(cuIpcCloseMemHandle(again));
    }
    w.press(s);
    launch_wide(s, w.add, x, x, x, n);
    w.press(s);
    tell("borrower reads", words = traps::read(x, n));
    char done = 'd';
    put(out, &done, 1);
    if (!opened) put(out, words.data(), words.size() * 4);
    get(in, &done, 1);
    if (!opened) launch_wide(s, w.add, x, x, x, n);
    CHECK(cuStreamSynchronize(s));
    tell("borrower reads then", traps::read(x, n));
    CHECK(opened ? cuIpcCloseMemHandle(x) : cuMemFree(x));
    if (opened && cuIpcCloseMemHandle(x) == CUDA_SUCCESS) exit(8);
    put(out, &done, 1);
    all_opened = all_opened && opened;
  }
  return all_opened;
}

// The other process: this program again, in an environment with the preload or without it.
pid_t start(bool owner, bool preload, unsigned seed, int in, int out) {
  fflush(stdout);
  const pid_t child = fork();
  if (child) return child;
  if (!preload) unsetenv("LD_PRELOAD");
  execl("/proc/self/exe", "traps", owner ? "ipc-owner" : "ipc-borrower", std::to_string(seed).c_str(), std::to_string(in).c_str(), std::to_string(out).c_str(), nullptr);
  _exit(6);
}

template <bool owner, bool preload>
void shared(unsigned seed) {
  int there[2], back[2];
  if (pipe(there) || pipe(back)) exit(1);
  const pid_t other = start(!owner, preload, seed, there[0], back[1]);
  close(there[0]), close(back[1]);
  World w(seed);
  const bool opened = owner ? own(w, back[0], there[1]) : borrow(w, back[0], there[1]);
  if (preload) tell("opened", opened);  // else it is opened alone only
  int status = 0;
  waitpid(other, &status, 0);
  tell("the other ended with", static_cast<unsigned>(status));
}

}  // namespace

int ipc_process(int argc, char** argv) {
  if (argc != 5) return 2;
  const int in = atoi(argv[3]), out = atoi(argv[4]);
  if (!freopen("/dev/null", "w", stdout)) return 3;  // what this process prints comes at any time
  World w(static_cast<unsigned>(strtoul(argv[2], nullptr, 10)));
  if (!strcmp(argv[1], "ipc-owner")) own(w, in, out);
  else borrow(w, in, out);
  return 0;
}

const std::vector<Trap> ipc_traps = {
    {"ipc-to-with", Needs::moves, shared<true, true>},
    {"ipc-to-without", Needs::moves, shared<true, false>},
    {"ipc-from-with", Needs::moves, shared<false, true>},
    {"ipc-from-without", Needs::moves, shared<false, false>},
};

}  // namespace traps
