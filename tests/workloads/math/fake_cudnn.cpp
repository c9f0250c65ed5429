// libcudnn.so.9, as far as products.cpp goes: the convolutions, and the graph interface as a program puts a plan together.
#include <cstring>
#include <map>
#include <vector>

#include "tests/workloads/math/device.hpp"
#include "tests/workloads/math/math_api.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))
using P = const void*;

namespace {

double all(const Shape& s) {
  double n = 1;
  for (int i = 0; i < s.dimensions; i++) n *= s.sizes[i];
  return n;
}
int convolve(P x, double xs, const Shape& filter, P w, const Shape& out, P y, double ys) {
  return multiply(data(x, xs), data(w, all(filter)), data(y, ys), all(out), all(filter) / filter.sizes[0]);
}

struct Object {
  int type;
  std::map<int, std::vector<char>> attributes;
  Object* object(int attribute) { return *reinterpret_cast<Object**>(attributes.at(attribute).data()); }
  double numbers() {
    double n = 1;
    const auto& bytes = attributes.at(902);
    for (std::size_t i = 0; i < bytes.size(); i += 8) n *= static_cast<double>(*reinterpret_cast<const std::int64_t*>(bytes.data() + i));
    return n;
  }
  double size(int dimension) { return static_cast<double>(reinterpret_cast<const std::int64_t*>(attributes.at(902).data())[dimension]); }
};

}  // namespace

EXPORT int cudnnSetStream(void*, CUstream stream) { return stream_in_use() = stream, 0; }
EXPORT int cudnnGetTensorNdDescriptor(P tensor, int wanted, int* type, int* dimensions, int* sizes, int* strides) {
  const Shape& s = *static_cast<const Shape*>(tensor);
  *type = 0, *dimensions = s.dimensions;
  for (int i = 0, stride = 1; i < s.dimensions && i < wanted; i++) sizes[i] = s.sizes[i], strides[s.dimensions - 1 - i] = stride, stride *= s.sizes[s.dimensions - 1 - i];
  return 0;
}
EXPORT int cudnnGetFilterNdDescriptor(P filter, int wanted, int* type, int* format, int* dimensions, int* sizes) {
  int strides[8];
  *format = 0;
  return cudnnGetTensorNdDescriptor(filter, wanted, type, dimensions, sizes, strides);
}
EXPORT int cudnnConvolutionForward(void*, P, P xd, P x, P wd, P w, P, int, void*, std::size_t, P, P yd, void* y) {
  const Shape& out = *static_cast<const Shape*>(yd);
  return convolve(x, all(*static_cast<const Shape*>(xd)), *static_cast<const Shape*>(wd), w, out, y, all(out));
}
EXPORT int cudnnConvolutionBackwardData(void*, P, P wd, P w, P dyd, P dy, P, int, void*, std::size_t, P, P dxd, void* dx) {
  const Shape &out = *static_cast<const Shape*>(dyd), &in = *static_cast<const Shape*>(dxd), &filter = *static_cast<const Shape*>(wd);
  return multiply(data(dy, all(out)), data(w, all(filter)), data(dx, all(in)), all(in), all(out) * all(filter) / filter.sizes[0] / all(in));
}
EXPORT int cudnnConvolutionBackwardFilter(void*, P, P xd, P x, P dyd, P dy, P, int, void*, std::size_t, P, P dwd, void* dw) {
  const Shape &out = *static_cast<const Shape*>(dyd), &filter = *static_cast<const Shape*>(dwd);
  return multiply(data(x, all(*static_cast<const Shape*>(xd))), data(dy, all(out)), data(dw, all(filter)), all(filter), all(out) / filter.sizes[0]);
}

EXPORT int cudnnBackendCreateDescriptor(int type, void** to) { return *to = new Object{type, {}}, 0; }
EXPORT int cudnnBackendDestroyDescriptor(void* object) { return delete static_cast<Object*>(object), 0; }
EXPORT int cudnnBackendFinalize(void*) { return 0; }
EXPORT int cudnnBackendSetAttribute(void* object, int attribute, int type, std::int64_t count, P elements) {
  const std::size_t bytes = static_cast<std::size_t>(count) * (type == 3 || type == 15 || type == 6 ? 8 : 4);
  auto& to = static_cast<Object*>(object)->attributes[attribute];
  to.assign(static_cast<const char*>(elements), static_cast<const char*>(elements) + bytes);
  return 0;
}
// Heuristics fill in one configuration: its engine has their graph.
EXPORT int cudnnBackendGetAttribute(void* object, int attribute, int, std::int64_t wanted, std::int64_t* count, void* elements) {
  if (attribute != 202 || wanted < 1) return 3000;
  Object* const engine = new Object{2, {}};
  engine->attributes[1300] = static_cast<Object*>(object)->attributes.at(201);
  Object* const config = static_cast<Object*>(*static_cast<void**>(elements));
  config->attributes[300].resize(8);
  std::memcpy(config->attributes[300].data(), &engine, 8);
  *count = 1;
  return 0;
}
EXPORT int cudnnBackendExecute(void*, void* plan, void* pack) {
  Object* const operation = static_cast<Object*>(plan)->object(401)->object(300)->object(1300)->object(801);
  const auto* const pointers = reinterpret_cast<void* const*>(static_cast<Object*>(pack)->attributes.at(1000).data());  // x, w, y
  if (operation->type == 19) {
    Object* const out = operation->object(1522);
    return multiply(data(pointers[0], operation->object(1520)->numbers()), data(pointers[1], operation->object(1521)->numbers()), data(pointers[2], out->numbers()), out->numbers(), operation->object(1520)->size(2));
  }
  Object *const filter = operation->object(703), *const out = operation->object(705);
  return multiply(data(pointers[0], operation->object(704)->numbers()), data(pointers[1], filter->numbers()), data(pointers[2], out->numbers()), out->numbers(), filter->numbers() / filter->size(0));
}
