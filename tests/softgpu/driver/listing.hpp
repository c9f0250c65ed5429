// SOFTGPU_LIST=FILE: what the program asks of the device, in the order in which it asks, so that a test can compare it with what
// an observer in front of the driver has seen. Buffers are numbered in the order of their making.
//   a BUFFER BYTES   f BUFFER
//   o NAME BUFFER:MODE...   a kernel, HtoD, DtoH, DtoD or Memset. r: is read. w: all of it is written, none of it read. x: counts as
//                           read and written (a kernel is given its address, a copy writes a part of it). A @ behind it:
//                           not given, but addresses in the memory of what it is given lead there. A *: its contents were others after
//                           the op.
//   g COUNT BUFFER:MODE...  a graph, as one op; its COUNT nodes follow as ops (without *)
// The device is waited for around each op, so it is for programs that do nothing else meanwhile.
#pragma once

#include <map>
#include <vector>

#include "tests/softgpu/driver/work.hpp"

namespace softgpu {

bool listing();  // somebody asked for it
void list_made(Address at, std::uint64_t bytes);
void list_freed(Address at);

// Around the submission of one op, or of a graph's.
class Listed {
  public:
    Listed(CUstream stream, const Work& work) {
        if (listing()) [[unlikely]] begin(stream, {&work});
    }
    Listed(CUstream stream, const std::vector<const Work*>& nodes) : graph_(true) {
        if (listing()) [[unlikely]] begin(stream, nodes);
    }
    ~Listed() {
        if (!works_.empty()) [[unlikely]] end();
    }
    Listed(const Listed&) = delete;
    Listed& operator=(const Listed&) = delete;

  private:
    void begin(CUstream stream, const std::vector<const Work*>& works);
    void end();
    struct Use {
        char mode;
        bool led;
        Address at;
        std::vector<char> before;
    };
    std::vector<const Work*> works_;
    std::map<int, Use> uses_;   // by buffer
    int device_ = 0;
    bool graph_ = false;
};

}  // namespace softgpu
