// Traps: memory shared between two processes by CUDA's own handles, each process with the library or without it (under the
// suite; alone neither has it). Memory of ours cannot be shared like this and says so; then the words go by a pipe, as in a
// program that minds the error. What is the driver's is opened under the library as without.
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

// Shares a buffer, pushes everything out, and reads what the other side has added.
void own(World& w, int in, int out, bool& refused) {
  const CUdeviceptr x = w.stepped();
  const CUstream s = w.stream();
  w.press(s);
  CUipcMemHandle handle{};
  const CUresult result = cuIpcGetMemHandle(&handle, x);
  if (result != CUDA_ERROR_NOT_SUPPORTED) CHECK(result);
  refused = result != CUDA_SUCCESS;
  put(out, &refused, sizeof refused);
  put(out, &handle, sizeof handle);
  std::vector<unsigned> words(kWords);
  if (refused) words = traps::read(x, kWords), put(out, words.data(), words.size() * 4);
  w.press(s);
  char done;
  get(in, &done, 1);
  if (refused) {
    get(in, words.data(), words.size() * 4);
    CHECK(cuMemcpyHtoD(x, words.data(), words.size() * 4));
  }
  w.press(s);
  tell("owner reads", traps::read(x, kWords));
  CHECK(cuMemFree(x));
}

// Opens it, or is given the words, and doubles them.
void borrow(World& w, int in, int out) {
  bool refused;
  CUipcMemHandle handle;
  get(in, &refused, sizeof refused);
  get(in, &handle, sizeof handle);
  const CUstream s = w.stream();
  CUdeviceptr x;
  std::vector<unsigned> words(kWords);
  if (refused) {
    get(in, words.data(), words.size() * 4);
    x = w.allocate(kWords * 4ul);
    CHECK(cuMemcpyHtoD(x, words.data(), words.size() * 4));
  } else {
    CHECK(cuIpcOpenMemHandle(&x, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  }
  w.press(s);
  launch_wide(s, w.add, x, x, x, kWords);
  w.press(s);
  tell("borrower reads", traps::read(x, kWords));
  if (refused) words = traps::read(x, kWords);
  CHECK(refused ? cuMemFree(x) : cuIpcCloseMemHandle(x));
  put(out, "d", 1);
  if (refused) put(out, words.data(), words.size() * 4);
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
  bool refused = false;
  if (owner) own(w, back[0], there[1], refused);
  else borrow(w, back[0], there[1]);
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
  bool refused = false;
  if (!strcmp(argv[1], "ipc-owner")) own(w, in, out, refused);
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
