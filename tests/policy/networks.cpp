#include "tests/policy/networks.hpp"

#include <algorithm>

namespace udnnmem::tests {

using namespace profiler;

namespace {

class Iteration {
public:
    Iteration(const std::string& name, const std::vector<Layer>& layers, const Update& update) : layers_(layers), update_(update) { trace_.header.name = name; }

    Trace make() {
        const std::size_t n = layers_.size();
        std::vector<int> readers(n, 0);
        for (const Layer& layer : layers_)
            for (const int input : layer.inputs) ++readers[static_cast<std::size_t>(input)];
        for (const Layer& layer : layers_) {
            weight_.push_back(layer.weight ? buffer(layer.weight, true) : -1);
            std::vector<int> optimiser;
            for (int i = 0; layer.weight && i < update_.state_buffers; ++i) optimiser.push_back(buffer(layer.weight, true));
            optimiser_.push_back(optimiser);
            statistics_.push_back(layer.state ? buffer(4096, true) : -1);
        }
        for (std::size_t l = 0; l < n; ++l) {
            const Layer& layer = layers_[l];
            const bool in_place = layer.in_place && layer.inputs.size() == 1 && readers[static_cast<std::size_t>(layer.inputs[0])] == 1;
            output_.push_back(in_place ? output_[static_cast<std::size_t>(layer.inputs[0])] : buffer(layer.output, false));
            std::vector<int> reads, writes{output_[l]};
            for (const int input : layer.inputs) reads.push_back(output_[static_cast<std::size_t>(input)]);
            if (weight_[l] >= 0) reads.push_back(weight_[l]);
            if (layer.state) reads.push_back(statistics_[l]), writes.push_back(statistics_[l]);
            op("forward", Phase::forward, layer.forward_ns, reads, writes, layer.workspace, layer.replayable);
        }
        gradient_.assign(n, -1);
        gradient_[n - 1] = buffer(layers_[n - 1].output, false);
        op("loss", Phase::backward, 1000, {output_[n - 1]}, {gradient_[n - 1]}, 0, false);
        for (std::size_t l = n; l-- > 0;) backward(l);
        for (const auto& [l, gradient] : later_) update(l, gradient);
        for (const TraceOp& o : trace_.ops) trace_.header.ideal += o.duration;
        trace_.header.batch = 32;
        return trace_;
    }

private:
    int buffer(std::int64_t bytes, bool persistent) {
        const auto id = static_cast<std::int32_t>(trace_.buffers.size());
        trace_.buffers.push_back({BufferId(id), Bytes(bytes), persistent, OpIndex(-1), OpIndex(-1), ""});
        return id;
    }

    void op(const char* name, Phase phase, std::int64_t ns, const std::vector<int>& reads, const std::vector<int>& writes, std::int64_t workspace, bool replayable) {
        TraceOp o;
        o.index = OpIndex(static_cast<std::int32_t>(trace_.ops.size()));
        o.name = name;
        o.phase = phase;
        o.duration = Nanoseconds(ns);
        for (const auto* set : {&reads, &writes}) {
            std::vector<BufferId>& to = set == &reads ? o.reads : o.writes;
            for (const int b : *set) to.push_back(BufferId(b));
            std::sort(to.begin(), to.end());
            to.erase(std::unique(to.begin(), to.end()), to.end());
        }
        o.workspace = Bytes(workspace);
        o.replayable = replayable;
        trace_.ops.push_back(o);
    }

    void backward(std::size_t l) {
        const Layer& layer = layers_[l];
        if (gradient_[l] < 0) return;  // nobody reads it
        std::vector<int> reads{gradient_[l]}, writes;
        if (layer.saves_output) reads.push_back(output_[l]);
        for (const int input : layer.inputs) {
            const auto i = static_cast<std::size_t>(input);
            if (layer.saves_input) reads.push_back(output_[i]);
            if (gradient_[i] < 0) gradient_[i] = buffer(layers_[i].output, false);
            else reads.push_back(gradient_[i]);  // accumulates
            writes.push_back(gradient_[i]);
        }
        int weight_gradient = -1;
        if (weight_[l] >= 0) {
            reads.push_back(weight_[l]);
            weight_gradient = buffer(layer.weight, false);
            writes.push_back(weight_gradient);
        }
        op("backward", Phase::backward, layer.backward_ns, reads, writes, layer.workspace, false);
        if (weight_gradient < 0) return;
        if (update_.at_once) update(l, weight_gradient);
        else later_.push_back({l, weight_gradient});
    }

    void update(std::size_t l, int gradient) {
        std::vector<int> both{weight_[l]};
        both.insert(both.end(), optimiser_[l].begin(), optimiser_[l].end());
        std::vector<int> reads = both;
        reads.push_back(gradient);
        op("update", Phase::update, 1000 + layers_[l].weight / 1000, reads, both, 0, false);
    }

    const std::vector<Layer>& layers_;
    Update update_;
    Trace trace_;
    std::vector<int> weight_, statistics_, output_, gradient_;
    std::vector<std::vector<int>> optimiser_;
    std::vector<std::pair<std::size_t, int>> later_;
};

// A layer at the speed of a card: bytes at 2 TB/s and a start, matrix products as given.
Layer layer(std::vector<int> inputs, std::int64_t output, std::int64_t weight = 0, std::int64_t extra_ns = 0) {
    Layer l{std::move(inputs), output, weight};
    l.forward_ns = 4000 + (2 * output + weight) / 2000 + extra_ns;
    l.backward_ns = 2 * l.forward_ns;
    return l;
}

}  // namespace

std::int64_t between(Random& random, std::int64_t low, std::int64_t high) { return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1)); }

bool chance(Random& random, int percent) { return between(random, 1, 100) <= percent; }

Trace make_iteration(const std::string& name, const std::vector<Layer>& layers, const Update& update) { return Iteration(name, layers, update).make(); }

Trace transformer(int blocks, std::uint64_t seed) {
    Random random(seed);
    const std::int64_t hidden = between(random, 8, 24) << 20, weights = between(random, 4, 30) << 20;
    std::vector<Layer> all{layer({}, hidden, 4 * weights)};
    all[0].replayable = true;
    for (int b = 0; b < blocks; ++b) {
        const int in = static_cast<int>(all.size()) - 1;
        const auto next = [&] { return static_cast<int>(all.size()); };
        all.push_back(layer({in}, hidden, 4096));                                      // norm
        all.push_back(layer({next() - 1}, 3 * hidden, 3 * weights, 90000));            // q, k, v
        all.push_back(layer({next() - 1}, hidden, 0, 60000));                          // attention
        all.push_back(layer({next() - 1}, hidden, weights, 30000));                    // projection
        all.push_back(layer({in, next() - 1}, hidden));                                // residual
        const int middle = next() - 1;
        all.push_back(layer({middle}, hidden, 4096));
        all.push_back(layer({next() - 1}, 4 * hidden, 4 * weights, 120000));
        all.push_back(layer({next() - 1}, 4 * hidden));                                // activation
        all.push_back(layer({next() - 1}, hidden, 4 * weights, 120000));
        all.push_back(layer({middle, next() - 1}, hidden));
    }
    all.push_back(layer({static_cast<int>(all.size()) - 1}, 20 * hidden, 4 * weights, 300000));
    return make_iteration("transformer-" + std::to_string(blocks), all, {2, false});
}

Trace residual(int blocks, std::uint64_t seed) {
    Random random(seed);
    std::int64_t map = between(random, 16, 64) << 20;
    std::vector<Layer> all{layer({}, map, 1 << 16)};
    for (int b = 0; b < blocks; ++b) {
        if (b && b % std::max(1, blocks / 4) == 0) map = std::max<std::int64_t>(map / 2, 1 << 20);
        const int in = static_cast<int>(all.size()) - 1;
        all.push_back(layer({in}, map, 1 << 20, 40000));
        Layer norm = layer({static_cast<int>(all.size()) - 1}, map, 4096);
        norm.state = true;
        all.push_back(norm);
        Layer relu = layer({static_cast<int>(all.size()) - 1}, map);
        relu.in_place = true;
        relu.saves_input = false;
        relu.saves_output = true;
        all.push_back(relu);
        all.push_back(layer({in, static_cast<int>(all.size()) - 1}, map, 1 << 20, 40000));
    }
    return make_iteration("residual-" + std::to_string(blocks), all, {1, false});
}

Trace u_net(int depth, std::uint64_t seed) {
    Random random(seed);
    std::int64_t map = between(random, 64, 200) << 20;
    std::vector<Layer> all{layer({}, map, 1 << 16)};
    std::vector<int> skips;
    for (int d = 0; d < depth; ++d) {
        for (int i = 0; i < 3; ++i) all.push_back(layer({static_cast<int>(all.size()) - 1}, map, 2 << 20, 50000));
        skips.push_back(static_cast<int>(all.size()) - 1);
        map = std::max<std::int64_t>(map / 2, 1 << 20);
        all.push_back(layer({static_cast<int>(all.size()) - 1}, map, 4 << 20, 30000));
    }
    for (int d = depth; d-- > 0;) {
        map *= 2;
        all.push_back(layer({static_cast<int>(all.size()) - 1}, map, 4 << 20, 30000));
        all.push_back(layer({skips[static_cast<std::size_t>(d)], static_cast<int>(all.size()) - 1}, 2 * map));
        for (int i = 0; i < 3; ++i) all.push_back(layer({static_cast<int>(all.size()) - 1}, map, 2 << 20, 50000));
    }
    return make_iteration("u-net-" + std::to_string(depth), all, {2, true});
}

Trace dense_net(int layers, std::uint64_t seed) {
    Random random(seed);
    const std::int64_t growth = between(random, 4, 16) << 20;
    std::vector<Layer> all{layer({}, 4 * growth, 1 << 16)};
    for (int l = 0; l < layers; ++l) {
        std::vector<int> inputs;
        for (int i = std::max(0, l - 12); i <= l; ++i) inputs.push_back(i);
        all.push_back(layer(inputs, growth, 1 << 20, 40000));
    }
    return make_iteration("dense-" + std::to_string(layers), all, {1, false});
}

Trace random_dag(int layers, std::uint64_t seed) {
    Random random(seed);
    std::vector<Layer> all{layer({}, 16 << 20, 1 << 16)};
    for (int l = 1; l <= layers; ++l) {
        std::vector<int> inputs{l - 1};
        for (int i = static_cast<int>(between(random, 0, 2)); i > 0 && l > 1; --i) inputs.push_back(static_cast<int>(between(random, std::max(0, l - 30), l - 1)));
        std::sort(inputs.begin(), inputs.end());
        inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
        Layer one = layer(inputs, between(random, 1, 64) << 20, chance(random, 60) ? between(random, 1, 16) << 20 : 0, between(random, 0, 150000));
        one.replayable = chance(random, 95);
        all.push_back(one);
    }
    return make_iteration("dag-" + std::to_string(layers), all, {static_cast<int>(between(random, 0, 2)), chance(random, 50)});
}

Trace recurrent(int steps, int layers, std::uint64_t seed) {
    Random random(seed);
    const std::int64_t state = between(random, 3, 40) << 18, odd = between(random, 1, 4096) * 16;
    std::vector<Layer> all{layer({}, state + odd, 1 << 16)};
    std::vector<int> before(static_cast<std::size_t>(layers), 0);
    for (int t = 0; t < steps; ++t)
        for (int l = 0; l < layers; ++l) {
            std::vector<int> inputs{before[static_cast<std::size_t>(l)]};
            if (l) inputs.push_back(before[static_cast<std::size_t>(l) - 1]);
            std::sort(inputs.begin(), inputs.end());
            inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
            Layer one = layer(inputs, state + odd * l, 0, between(random, 5000, 60000));
            before[static_cast<std::size_t>(l)] = static_cast<int>(all.size());
            all.push_back(one);
        }
    return make_iteration("recurrent-" + std::to_string(steps) + "x" + std::to_string(layers), all, {1, false});
}

Trace anything(Random& random, int most_layers) {
    const int layers = static_cast<int>(between(random, 1, most_layers));
    const std::int64_t granule = std::int64_t{1} << between(random, 0, 21);
    const int shape = static_cast<int>(between(random, 0, 3));
    const bool ties = chance(random, 40), zero = chance(random, 25), small = chance(random, 20), spacious = chance(random, 20);
    const auto bytes = [&] { return small ? granule : ties ? 4 * granule : granule * between(random, 1, 40); };
    std::vector<Layer> all;
    for (int l = 0; l < layers; ++l) {
        Layer one;
        if (l) {
            one.inputs.push_back(l - 1);
            if (shape == 1 && l >= 3 && l % 3 == 0) one.inputs.push_back(l - 3);                                // residual
            if (shape == 2 && l > layers / 2 && layers - 1 - l < l - 1) one.inputs.push_back(layers - 1 - l);   // U
            if (shape == 3 && chance(random, 50)) one.inputs.push_back(static_cast<int>(between(random, 0, l - 1)));
            std::sort(one.inputs.begin(), one.inputs.end());
            one.inputs.erase(std::unique(one.inputs.begin(), one.inputs.end()), one.inputs.end());
        }
        one.output = bytes();
        if (chance(random, 50)) one.weight = bytes();
        if (spacious || chance(random, 10)) one.workspace = granule * between(random, 0, 80);
        one.forward_ns = zero && chance(random, 50) ? 0 : ties ? 20000 : between(random, 1, 100000);
        one.backward_ns = zero && chance(random, 30) ? 0 : 2 * one.forward_ns;
        one.in_place = chance(random, 15);
        one.state = chance(random, 15);
        one.replayable = chance(random, 90);
        one.saves_input = chance(random, 75);
        one.saves_output = chance(random, 25);
        all.push_back(one);
    }
    Trace trace = make_iteration("anything", all, {static_cast<int>(between(random, 0, 2)), chance(random, 50)});
    if (chance(random, 5)) {  // no buffer is named twice
        std::vector<bool> named(trace.buffers.size(), false);
        for (TraceOp& op : trace.ops) {
            op.reads.clear();
            std::erase_if(op.writes, [&](BufferId id) { return trace.buffers[static_cast<std::size_t>(id.value)].persistent || named[static_cast<std::size_t>(id.value)]; });
            for (const BufferId id : op.writes) named[static_cast<std::size_t>(id.value)] = true;
        }
    }
    // Lives that are longer than the uses, as allocators make them.
    const auto ops = static_cast<std::int32_t>(trace.ops.size());
    for (TraceBuffer& buffer : trace.buffers) {
        if (buffer.persistent || !chance(random, 10)) continue;
        std::int32_t first = ops, last = -1;
        for (const TraceOp& op : trace.ops)
            for (const auto* set : {&op.reads, &op.writes})
                if (std::find(set->begin(), set->end(), buffer.id) != set->end()) first = std::min(first, op.index.value), last = std::max(last, op.index.value);
        if (last < 0) continue;
        buffer.alloc_op = OpIndex(static_cast<std::int32_t>(between(random, std::max(0, first - 2), first)));
        buffer.free_op = OpIndex(static_cast<std::int32_t>(between(random, last, std::min(ops - 1, last + 2))));
    }
    return trace;
}

}  // namespace udnnmem::tests
