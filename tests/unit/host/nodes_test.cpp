// Lists of NUMA nodes as the kernel writes them.
#include <catch2/catch.hpp>

#include <filesystem>
#include <vector>

#include "shim/host/host_memory.hpp"

using namespace udnnmem;

TEST_CASE("lists of nodes") {
    using Nodes = std::vector<int>;
    CHECK(host::node_list("0\n") == Nodes{0});
    CHECK(host::node_list("0-1\n") == Nodes{0, 1});
    CHECK(host::node_list("0-2,5,8-9") == Nodes{0, 1, 2, 5, 8, 9});
    for (const char* none : {"", "\n", "x", "-", "-1", "3-1", "0-99999999", ","}) CHECK(host::node_list(none).empty());
    CHECK(host::node_list("1,x") == Nodes{1});
}

TEST_CASE("where the kernel tells of nodes there is one with memory and processors, and each is named once") {
    const std::vector<int> nodes = host::memory_nodes();
    if (std::filesystem::exists("/sys/devices/system/node/has_memory")) CHECK_FALSE(nodes.empty());
    for (std::size_t i = 1; i < nodes.size(); ++i) CHECK(nodes[i - 1] < nodes[i]);
}
