"""tinygrad_said.py LIST SCRIPT: runs a tinygrad script and writes down what tinygrad itself says that it allocates, frees, copies and
launches on its CUDA device, in the lines of tests/softgpu/driver/listing.hpp. Its own objects are asked: allocator, programs and
graphs of tinygrad 0.14."""
import bisect, runpy, sys

del sys.path[0]   # beside this file lies a tinygrad.py of ours

from tinygrad.runtime import ops_cuda
from tinygrad.runtime.graph import cuda as graph_cuda


class Listing:
    def __init__(self, path):
        self.file, self.next, self.starts, self.known = open(path, "w"), 0, [], {}

    def line(self, *words):
        print(*words, file=self.file, flush=True)

    def made(self, at, size):
        bisect.insort(self.starts, at)
        self.known[at] = (self.next, size)
        self.line("a", self.next, size)
        self.next += 1

    def freed(self, at):
        if at in self.known:
            self.starts.remove(at)
            self.line("f", self.known.pop(at)[0])

    def use(self, at, mode, written=0):
        """The buffer that the address lies in; `written` bytes from there on, where they are known."""
        at = getattr(at, "value", at) or 0
        k = bisect.bisect_right(self.starts, at) - 1
        if k < 0 or at - self.starts[k] >= self.known[self.starts[k]][1]:
            return []
        number, size = self.known[self.starts[k]]
        return [f"{number}:{'w' if mode == 'w' and at == self.starts[k] and written >= size else 'x' if mode == 'w' else mode}"]


def around(owner, name, before=None, after=None):
    real = getattr(owner, name)

    def call(self, *arguments, **named):
        if before:
            before(self, *arguments)
        result = real(self, *arguments, **named)
        if after:
            after(result, self, *arguments)
        return result

    setattr(owner, name, call)


def main():
    listing = Listing(sys.argv[1])
    on_device = lambda options: not options.host and not options.external_ptr
    allocator = ops_cuda.CUDAAllocator
    around(allocator, "_alloc", after=lambda at, _, size, options: on_device(options) and listing.made(at.value, size))
    around(allocator, "_free", before=lambda _, at, options: on_device(options) and listing.freed(at.value))
    around(allocator, "_copyin", after=lambda _r, _, to, data: listing.line("o", "HtoD", *listing.use(to, "w", len(data))))
    around(allocator, "_copyout", after=lambda _r, _, data, at: listing.line("o", "DtoH", *listing.use(at, "r")))
    around(allocator, "_transfer", after=lambda _r, _, to, at, size, *devices: listing.line("o", "DtoD", *listing.use(at, "r"), *listing.use(to, "w", size)))
    around(ops_cuda.CUDAProgram, "__call__", after=lambda _r, program, *buffers: listing.line("o", program.name, *(u for b in buffers for u in listing.use(b, "x"))))

    def launched(_result, graph, *_arguments):
        nodes = []
        for (_, params, given, is_copy), runtime, (_, _, buffers, _) in zip(graph.nodes, graph.runtimes, graph.calls):
            if is_copy:
                nodes.append(["DtoD", *listing.use(params.srcDevice, "r"), *listing.use(params.dstDevice, "w", params.WidthInBytes)])
            else:
                nodes.append([runtime.name, *(u for i in range(len(buffers)) for u in listing.use(getattr(given, f"f{i}"), "x"))])
        listing.line("g", len(nodes), *sorted({f"{u.split(':')[0]}:x" for node in nodes for u in node[1:]}))
        for node in nodes:
            listing.line("o", *node)

    around(graph_cuda.CUDAGraph, "__call__", after=launched)
    sys.argv = sys.argv[2:]
    sys.path.insert(0, sys.argv[0].rpartition("/")[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
