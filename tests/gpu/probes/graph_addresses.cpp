// When does the driver look at the addresses of a graph's copies and fills: when the nodes are made, changed, copied, instantiated,
// updated, uploaded? Each is tried with the memory mapped and with it unmapped; then, mapped again, what was made is launched. An
// answer that differs says that the memory has to be mapped for that call.
#include "common.hpp"

struct Nodes {   // one graph that fills `a` and copies it to `b`
  CUgraph graph = nullptr; CUgraphNode fill = nullptr, copy = nullptr;
  CUDA_MEMSET_NODE_PARAMS fillParams{}; CUDA_MEMCPY3D copyParams{};
  CUresult made = CUDA_SUCCESS;
  Nodes(CUcontext context, CUdeviceptr a, CUdeviceptr b, unsigned value) {
    CHECK(cuGraphCreate(&graph, 0));
    fillParams.dst = a; fillParams.value = value; fillParams.elementSize = 4; fillParams.width = 256; fillParams.height = 1;
    copyParams.srcMemoryType = copyParams.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copyParams.srcDevice = a; copyParams.dstDevice = b; copyParams.WidthInBytes = 1024; copyParams.Height = copyParams.Depth = 1;
    made = cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &fillParams, context);
    if (!made) made = cuGraphAddMemcpyNode(&copy, graph, &fill, 1, &copyParams, context);
  }
};

int main(int argc, char** argv) {
  Deadline whole(option(argc, argv, "--limit-s", 20), giveUp("graph_addresses"));
  Gpu gpu("graph_addresses", argc, argv);
  CUcontext context; CHECK(cuCtxGetCurrent(&context));
  Frame a = Frame::make(gpu, gpu.granularity), b = Frame::make(gpu, gpu.granularity);
  const CUstream s = newStream();
  const auto unmap = [&] { CHECK(cuStreamSynchronize(s)); CHECK(cuMemUnmap(a.va, a.bytes)); CHECK(cuMemUnmap(b.va, b.bytes)); };
  const auto map = [&] { gpu.map(a.va, a.bytes, a.handle); gpu.map(b.va, b.bytes, b.handle); };
  // What `b` holds once the executable has run; an error's name else.
  const auto outcome = [&](CUgraphExec exec) {
    CHECK(cuMemsetD32(b.va, 0, 256));
    CHECK(cuCtxSynchronize());
    CUresult r = cuGraphLaunch(exec, s);
    if (!r) r = cuStreamSynchronize(s);
    unsigned word = 0;
    if (!r) r = cuMemcpyDtoH(&word, b.va + 1020, 4);
    return r ? errorName(r) : std::to_string(word);
  };
  Nodes first(context, a.va, b.va, 1), second(context, a.va, b.va, 2);
  CHECK(first.made); CHECK(second.made);
  bool looks = false;
  const auto ask = [&](const char* call, const std::function<CUresult()>& made) {
    phase() = call;
    const CUresult mapped = made();
    unmap();
    const CUresult unmapped = made();
    map();
    Json j;
    j["call"] = call; j["mapped"] = errorName(mapped); j["unmapped"] = errorName(unmapped);
    looks |= mapped != unmapped;
    report()["calls"].push(j);
    say("%-40s mapped %s, unmapped %s", call, errorName(mapped).c_str(), errorName(unmapped).c_str());
  };
  CUgraphExec exec = nullptr, last = nullptr;
  CHECK(cuGraphInstantiate(&exec, first.graph, 0));
  ask("cuGraphAddMemsetNode, cuGraphAddMemcpyNode", [&] { return Nodes(context, a.va, b.va, 3).made; });
  ask("cuGraphMemsetNodeSetParams", [&] { return cuGraphMemsetNodeSetParams(second.fill, &second.fillParams); });
  ask("cuGraphMemcpyNodeSetParams", [&] { return cuGraphMemcpyNodeSetParams(second.copy, &second.copyParams); });
  ask("cuGraphExecMemsetNodeSetParams", [&] { return cuGraphExecMemsetNodeSetParams(exec, first.fill, &first.fillParams, context); });
  ask("cuGraphExecMemcpyNodeSetParams", [&] { return cuGraphExecMemcpyNodeSetParams(exec, first.copy, &first.copyParams, context); });
  ask("cuGraphClone", [&] { CUgraph g; return cuGraphClone(&g, second.graph); });
  ask("cuGraphAddChildGraphNode", [&] { CUgraph g; CUgraphNode n; CHECK(cuGraphCreate(&g, 0)); return cuGraphAddChildGraphNode(&n, g, nullptr, 0, second.graph); });
  ask("cuGraphInstantiate", [&] { last = nullptr; return cuGraphInstantiate(&last, second.graph, 0); });
  report()["instantiated_while_unmapped_runs"] = last ? outcome(last) : "was not made";
  ask("cuGraphUpload", [&] { return cuGraphUpload(exec, s); });
  CUgraphExecUpdateResultInfo info{};
  ask("cuGraphExecUpdate", [&] { return cuGraphExecUpdate(exec, second.graph, &info); });
  report()["updated_while_unmapped_runs"] = outcome(exec);
  report()["verdict"] = looks ? "some calls look at the addresses" : "no call looks at the addresses";
  finish(0);
}
