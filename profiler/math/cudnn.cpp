// cuDNN: a convolution, and the gradients of one by its data and by its filter, take 2 * (numbers of the output) * (numbers of
// the filter) / (output channels) FLOPs: each number of the output is the product of a filter with a piece of the input. Sizes
// are asked of the descriptors; those of the graph interface are followed as they are put together, for a plan does not say
// what it computes.
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "profiler/math/internal.hpp"

using namespace udnnmem::profiler::math;

namespace {

constexpr int kMostDimensions = 8;   // CUDNN_DIM_MAX

double numbers(const int* sizes, int dimensions) {
    double all = 1;
    for (int i = 0; i < dimensions && i < kMostDimensions; ++i) all *= sizes[i];
    return all;
}

double convolution(Function which, const void* filter, const void* output) {
    const auto ask_tensor = reinterpret_cast<api::cudnnGetTensorNdDescriptor*>(beside(which, "cudnnGetTensorNdDescriptor"));
    const auto ask_filter = reinterpret_cast<api::cudnnGetFilterNdDescriptor*>(beside(which, "cudnnGetFilterNdDescriptor"));
    int type, format, dimensions = 0, sizes[kMostDimensions] = {}, strides[kMostDimensions];
    if (!ask_tensor || !ask_filter || !filter || !output) return 0;
    if (ask_tensor(output, kMostDimensions, &type, &dimensions, sizes, strides) != 0) return 0;
    const double out = numbers(sizes, dimensions);
    if (ask_filter(filter, kMostDimensions, &type, &format, &dimensions, sizes) != 0 || sizes[0] <= 0) return 0;
    return 2 * out * numbers(sizes, dimensions) / sizes[0];
}

// ---- the graph interface --------------------------------------------------------------------------------------------------

// What is known of a descriptor that the program has made.
struct Known {
    int type = 0;
    std::vector<std::int64_t> sizes;    // of a tensor
    void* filter = nullptr;             // of an operation; a of a matrix product
    void* output = nullptr;             //                  c of a matrix product
    std::vector<void*> operations;      // of a graph
    double flops = 0;                   // of what has a graph, from when it has one: heuristics, engine, configuration, plan
    bool products = false;              // ... and these are of matrix products alone
};

// Leaked: libraries use cuDNN from their own destructors. Bounded: past so many descriptors new ones are not followed.
constexpr std::size_t kMostDescriptors = 1 << 16;
struct Descriptors {
    std::mutex mutex;
    std::map<void*, Known> known;
};
Descriptors& descriptors() {
    static Descriptors* const d = new Descriptors;
    return *d;
}

double numbers(const std::vector<std::int64_t>& sizes) {
    double all = sizes.empty() ? 0 : 1;
    for (const std::int64_t size : sizes) all *= static_cast<double>(size);
    return all;
}

const Known* find(const Descriptors& d, void* which) {
    const auto found = d.known.find(which);
    return found == d.known.end() ? nullptr : &found->second;
}

double flops_of(const Descriptors& d, const Known& operation) {
    const Known* const filter = find(d, operation.filter);
    const Known* const output = find(d, operation.output);
    if (!filter || !output || filter->sizes.empty() || filter->sizes[0] <= 0) return 0;
    if (operation.type == api::matmul) return 2 * numbers(output->sizes) * static_cast<double>(filter->sizes.back());
    return 2 * numbers(output->sizes) * numbers(filter->sizes) / static_cast<double>(filter->sizes[0]);
}

void set(Descriptors& d, Known& known, int attribute, int type, std::int64_t count, const void* elements) {
    if (type == api::type_int64 && attribute == api::tensor_dimensions) {
        const auto* const sizes = static_cast<const std::int64_t*>(elements);
        known.sizes.assign(sizes, sizes + count);
    }
    if (type != api::type_descriptor) return;
    auto* const* const named = static_cast<void* const*>(elements);
    switch (attribute) {
        case api::forward_w: case api::data_w: case api::filter_dw: case api::matmul_a: known.filter = named[0]; break;
        case api::forward_y: case api::data_dy: case api::filter_dy: case api::matmul_c: known.output = named[0]; break;
        case api::graph_operations: {
            known.flops = 0;
            known.products = true;
            for (std::int64_t i = 0; i < count; ++i) {
                const Known* const operation = find(d, named[i]);
                if (!operation || !operation->filter) continue;
                known.flops += flops_of(d, *operation);
                known.products &= operation->type == api::matmul;
            }
            break;
        }
        case api::engine_graph: case api::heuristics_graph: case api::config_engine: case api::plan_config:
            if (const Known* const from = find(d, named[0])) known.flops = from->flops, known.products = from->products;
            break;
        default: break;
    }
}

template <class Body>
void follow(Body body) noexcept {
    try {
        Descriptors& d = descriptors();
        std::lock_guard lock(d.mutex);
        body(d);
    } catch (const std::bad_alloc&) {  // what it describes is not counted
    }
}

int create(Function which, int type, void** descriptor) {
    const int status = hand_on<api::cudnnBackendCreateDescriptor>(which, "", []() noexcept { return 0.0; }, type, descriptor);
    if (status == 0 && descriptor)
        follow([&](Descriptors& d) {
            if (d.known.size() < kMostDescriptors) d.known[*descriptor] = Known{.type = type};
        });
    return status;
}

int destroy(Function which, void* descriptor) {
    follow([&](Descriptors& d) { d.known.erase(descriptor); });  // before another one gets its place
    return hand_on<api::cudnnBackendDestroyDescriptor>(which, "", []() noexcept { return 0.0; }, descriptor);
}

int set(Function which, void* descriptor, int attribute, int type, std::int64_t count, const void* elements) {
    const int status = hand_on<api::cudnnBackendSetAttribute>(which, "", []() noexcept { return 0.0; }, descriptor, attribute, type, count, elements);
    if (status == 0 && count > 0 && elements)
        follow([&](Descriptors& d) {
            if (const auto found = d.known.find(descriptor); found != d.known.end()) set(d, found->second, attribute, type, count, elements);
        });
    return status;
}

// Heuristics fill in configurations that the program has made empty.
int get(Function which, void* descriptor, int attribute, int type, std::int64_t wanted, std::int64_t* count, void* elements) {
    const int status = hand_on<api::cudnnBackendGetAttribute>(which, "", []() noexcept { return 0.0; }, descriptor, attribute, type, wanted, count, elements);
    if (status == 0 && attribute == api::heuristics_results && type == api::type_descriptor && elements && count)
        follow([&](Descriptors& d) {
            const Known* const from = find(d, descriptor);
            for (std::int64_t i = 0; from && i < *count && i < wanted; ++i)
                if (const auto to = d.known.find(static_cast<void**>(elements)[i]); to != d.known.end()) to->second.flops = from->flops, to->second.products = from->products;
        });
    return status;
}

int execute(Function which, void* h, void* plan, void* pack) {
    double flops = 0;
    bool products = false;
    if (watching())
        follow([&](Descriptors& d) {
            if (const Known* const known = find(d, plan)) flops = known->flops, products = known->products;
        });
    return hand_on<api::cudnnBackendExecute>(which, products ? "cudnnBackendExecute (matmul)" : "cudnnBackendExecute (convolution)", [&]() noexcept { return flops; }, h, plan, pack);
}

}  // namespace

#define ON(name, flops, ...) hand_on<api::name>(which, #name, [&]() noexcept -> double { return flops; }, __VA_ARGS__)
using P = const void*;

CUDNN_RELEASES(MATH_EXPORT, cudnnConvolutionForward, (void* h, P alpha, P x, P xd, P w, P wd, P c, int algorithm, void* space, std::size_t size, P beta, P y, void* yd),
               ON(cudnnConvolutionForward, convolution(which, w, y), h, alpha, x, xd, w, wd, c, algorithm, space, size, beta, y, yd))
CUDNN_RELEASES(MATH_EXPORT, cudnnConvolutionBackwardData, (void* h, P alpha, P w, P wd, P dy, P dyd, P c, int algorithm, void* space, std::size_t size, P beta, P dx, void* dxd),
               ON(cudnnConvolutionBackwardData, convolution(which, w, dy), h, alpha, w, wd, dy, dyd, c, algorithm, space, size, beta, dx, dxd))
CUDNN_RELEASES(MATH_EXPORT, cudnnConvolutionBackwardFilter, (void* h, P alpha, P x, P xd, P dy, P dyd, P c, int algorithm, void* space, std::size_t size, P beta, P dw, void* dwd),
               ON(cudnnConvolutionBackwardFilter, convolution(which, dw, dy), h, alpha, x, xd, dy, dyd, c, algorithm, space, size, beta, dw, dwd))
CUDNN_RELEASES(MATH_EXPORT, cudnnConvolutionBiasActivationForward,
               (void* h, P alpha, P x, P xd, P w, P wd, P c, int algorithm, void* space, std::size_t size, P alpha2, P z, P zd, P bias, P biasd, P activation, P y, void* yd),
               ON(cudnnConvolutionBiasActivationForward, convolution(which, w, y), h, alpha, x, xd, w, wd, c, algorithm, space, size, alpha2, z, zd, bias, biasd, activation, y, yd))
CUDNN_RELEASES(MATH_EXPORT, cudnnBackendCreateDescriptor, (int type, void** descriptor), create(which, type, descriptor))
CUDNN_RELEASES(MATH_EXPORT, cudnnBackendDestroyDescriptor, (void* descriptor), destroy(which, descriptor))
CUDNN_RELEASES(MATH_EXPORT, cudnnBackendSetAttribute, (void* descriptor, int attribute, int type, std::int64_t count, P elements), set(which, descriptor, attribute, type, count, elements))
CUDNN_RELEASES(MATH_EXPORT, cudnnBackendGetAttribute, (void* descriptor, int attribute, int type, std::int64_t wanted, std::int64_t* count, void* elements),
               get(which, descriptor, attribute, type, wanted, count, elements))
CUDNN_RELEASES(MATH_EXPORT, cudnnBackendExecute, (void* h, void* plan, void* pack), execute(which, h, plan, pack))
