// The parser of device images, on what the toolkit's compiler writes and on damaged copies of it.
#include "interpose/cuda_symbols.hpp"

#include "interpose/image_layouts.hpp"
#include "interpose/kernel_code.hpp"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <random>

#include "tests/catch.hpp"

using namespace udnnmem::interpose;

namespace {

std::string folder() {
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    const std::string exe(path, n > 0 ? n : 0);
    return exe.substr(0, exe.rfind('/')) + "/interpose/";
}

std::string contents(const std::string& name) {
    std::ifstream file(folder() + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

using Params = std::vector<std::pair<unsigned, unsigned>>;
Params params_of(const ImageLayouts& layouts, const char* kernel) {
    auto it = layouts.find(kernel);
    if (it == layouts.end()) return {{~0u, ~0u}};
    Params p;
    for (auto& x : it->second) p.emplace_back(x.offset, x.size);
    return p;
}

const char* const files[] = {"images.cubin", "images.plain.fatbin", "images.packed.fatbin", "images.lz4.fatbin", "images.ptx"};

}  // namespace

TEST_CASE("layouts are read from every form of image", "[images]") {
    for (const char* name : files) {
        CAPTURE(name);
        const std::string image = contents(name);
        REQUIRE(image.size() > 500);
        CHECK(image_bytes(image.data()) <= image.size());
        for (std::size_t bytes : {image.size(), image_bytes(image.data())}) {
            const ImageLayouts layouts = parse_image(image.data(), bytes);
            CHECK(layouts.size() == 4);
            CHECK(params_of(layouts, "none").empty());
            CHECK(params_of(layouts, "plain") == Params{{0, 8}, {8, 8}, {16, 4}});
            CHECK(params_of(layouts, "mixed") == Params{{0, 1}, {8, 16}, {24, 2}, {32, 8}, {40, 1}});
            CHECK(params_of(layouts, "large") == Params{{0, 2800}, {2800, 2800}, {5600, 8}});
        }
    }
}

TEST_CASE("where machine code lies beside PTX, what the PTX says is kept, and not taken for all", "[images]") {
    const std::string text = contents("images.ptx"), both = contents("images.plain.fatbin");
    const KernelCodes ptx = read_code(text.c_str(), text.size() + 1), fatbin = read_code(both.data(), both.size());
    CHECK(ptx.at("plain").writes_known);
    CHECK_FALSE(ptx.at("plain").writes.empty());
    CHECK_FALSE(fatbin.at("plain").writes_known);
    CHECK(fatbin.at("plain").writes == ptx.at("plain").writes);
}

TEST_CASE("images are kept by owner and forgotten with it", "[images]") {
    const std::string image = contents("images.packed.fatbin");
    struct {
        std::uint32_t magic = 0x466243b1, version = 1;
        const void* data;
        void* file = nullptr;
    } wrapper;
    wrapper.data = image.data();
    int a, b;
    std::vector<KernelLayout::Param> params;
    remember_image(&a, &wrapper);
    remember_image_file(&b, (folder() + "images.cubin").c_str());
    CHECK((image_layout(&a, "plain", params) && params.size() == 3));
    CHECK((image_layout(&b, "mixed", params) && params.size() == 5));
    CHECK_FALSE(image_layout(&a, "other", params));
    forget_image(&a);
    CHECK_FALSE(image_layout(&a, "plain", params));
    CHECK(image_layout(&b, "plain", params));
    remember_image_file(&b, "/nonexistent");
    CHECK_FALSE(image_layout(&b, "plain", params));
}

TEST_CASE("PTX as people write it", "[images]") {
    const char* text = R"(
        // .entry commented(.param .u64 a)
        .version 7.5 .target sm_75 .address_size 64
        /* .entry also(.param .u64 a) */
        .func helper(.param .b32 x) { ret; }
        .visible .entry bare { ret; }
        .entry pointers(.param .u64 .ptr .global .align 16 a,.param .u32 n , .param .align 16 .b8 s[48], .param .pred p)
        { ret; }
        .visible .entry good(.param .b8 c, .param .align 4 .b8 s[6], .param .f64 d) { ret; })";
    const ImageLayouts layouts = parse_image(text, std::string(text).size());
    CHECK(layouts.size() == 2);
    CHECK(params_of(layouts, "bare").empty());
    CHECK(params_of(layouts, "good") == Params{{0, 1}, {4, 6}, {16, 8}});
    CHECK(layouts.count("pointers") == 0);  // a type that no kernel parameter has
}

TEST_CASE("damaged images are read without harm", "[images]") {
    std::mt19937 random(7);
    const int rounds = std::getenv("UDNNMEM_TEST_FULL") ? 20000 : 600;
    for (const char* name : files) {
        const std::string image = contents(name);
        for (int i = 0; i < rounds; ++i) {
            // On the heap with its exact size, so that a sanitiser sees a read past the end.
            std::vector<char> copy(image.begin(), image.end());
            if (i % 3 == 0) copy.resize(random() % copy.size());
            for (unsigned n = random() % 12; n-- && !copy.empty();) {
                const std::size_t at = random() % (i % 2 ? copy.size() : std::min<std::size_t>(copy.size(), 128));
                copy[at] = static_cast<char>(random() % 4 ? random() : 255);
            }
            (void)read_code(copy.data(), copy.size());
            for (const auto& [kernel, params] : parse_image(copy.data(), copy.size()))
                for (const auto& p : params) REQUIRE(p.offset + p.size <= 2 * 65536);
        }
    }
}
