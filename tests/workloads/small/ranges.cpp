// ranges [STEPS [MICRO [WORDS]]]: a training loop that says what it does by NVTX, in all of its forms: pushed and popped,
// started and ended, in ASCII, wide and registered text, in domains of its own. A step is MICRO times the same ops. Prints a
// checksum.
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

#include "tests/workloads/small/driver_program.hpp"

namespace {

nvtxEventAttributes_t attributes() {
  nvtxEventAttributes_t e{};
  e.version = NVTX_VERSION;
  e.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  return e;
}
nvtxEventAttributes_t ascii(const char* text) {
  nvtxEventAttributes_t e = attributes();
  e.messageType = NVTX_MESSAGE_TYPE_ASCII;
  e.message.ascii = text;
  return e;
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned steps = argument(argc, argv, 1, 12), micro = argument(argc, argv, 2, 1), words = argument(argc, argv, 3, 1 << 16);
  constexpr unsigned layers = 4;
  const nvtxDomainHandle_t data = nvtxDomainCreateA("data"), optimiser = nvtxDomainCreateW(L"optim");
  nvtxEventAttributes_t update = attributes();
  update.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  update.message.registered = nvtxDomainRegisterStringA(optimiser, "update");
  Program p;
  std::vector<unsigned> input(words, 3);
  std::vector<CUdeviceptr> weights, activations;
  for (unsigned l = 0; l < layers; l++) {
    weights.push_back(p.allocate(words * 4ul));
    activations.push_back(p.allocate(words * 4ul));
    p.launch(p.fill, weights[l], l, words);
  }
  const CUdeviceptr batch = p.allocate(words * 4ul);
  for (unsigned s = 0; s < steps; s++) {
    nvtxRangePushA("step");
    for (unsigned m = 0; m < micro; m++) {
      const nvtxEventAttributes_t load = ascii("load");
      nvtxDomainRangePushEx(data, &load);
      CHECK(cuMemcpyHtoD(batch, input.data(), words * 4ul));
      nvtxDomainRangePop(data);
      const nvtxEventAttributes_t forward = ascii("forward");
      nvtxRangePushEx(&forward);
      for (unsigned l = 0; l < layers; l++) {
        nvtxRangePushW((L"layer " + std::to_wstring(l)).c_str());
        p.launch(p.add, l ? activations[l - 1] : batch, weights[l], activations[l], words);
        nvtxRangePop();
      }
      nvtxRangePop();
      const nvtxRangeId_t backward = nvtxRangeStartA("backward");
      for (unsigned l = layers; l-- > 0;) p.launch(p.add, activations[l], weights[l], activations[l], words);
      nvtxRangeEnd(backward);
      const nvtxRangeId_t range = nvtxDomainRangeStartEx(optimiser, &update);
      for (unsigned l = 0; l < layers; l++) p.launch(p.add, activations[l], weights[l], weights[l], words);
      nvtxDomainRangeEnd(optimiser, range);
    }
    nvtxRangePop();
    nvtxMarkA("step done");
    CHECK(cuCtxSynchronize());
  }
  unsigned total = 0;
  for (CUdeviceptr w : weights) total = total * 31 + p.total(w, words);
  printf("checksum %08x\n", total);
  return 0;
}
