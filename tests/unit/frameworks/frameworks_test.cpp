// What is set for which framework: by version, by what the user has set, by where packages lie.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "shim/frameworks/frameworks.hpp"
#include "tests/catch.hpp"

using namespace udnnmem::frameworks;

namespace {

using Environment = std::map<std::string, std::string>;

Lookup in(const Environment& environment) {
    return [&environment](const char* name) -> const char* {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
    };
}

// NAME=value of each that is set, in the table's order; "(VARIABLE=value)" for what the user's own choice keeps out.
std::vector<std::string> decided(const std::vector<Distribution>& installed, const Environment& environment = {}) {
    std::vector<std::string> lines;
    for (const Switch& s : decide(installed, in(environment), "/site")) lines.push_back(s.chosen.empty() ? s.variable + ("=" + s.value) : "(" + s.chosen + ")");
    return lines;
}

using Lines = std::vector<std::string>;

struct Folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() / ("udnnmem-frameworks-" + std::to_string(::getpid()));
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string make(const std::string& name) const {
        std::filesystem::create_directories(path / name);
        return (path / name).string();
    }
    std::string write(const std::string& name, const std::string& text) const {
        std::filesystem::create_directories((path / name).parent_path());
        std::ofstream(path / name) << text;
        return (path / name).string();
    }
};

}  // namespace

TEST_CASE("versions are compared by their leading numbers") {
    CHECK(version_at_least("2.11.0+cu130", "2.9"));
    CHECK(version_at_least("2.9", "2.9"));
    CHECK_FALSE(version_at_least("2.8.1", "2.9"));
    CHECK_FALSE(version_at_least("0.4.9", "0.4.13"));
    CHECK(version_at_least("1", ""));
    CHECK(version_at_least("2.9.0a0+git1234", "2.9"));
    CHECK_FALSE(version_at_least("", "1"));
    CHECK(version_at_least("99999999999999999999", "2"));
}

TEST_CASE("each framework gets what its version understands") {
    CHECK(decided({}) == Lines{});
    CHECK(decided({{"numpy", "2.3.5"}}) == Lines{});
    CHECK(decided({{"torch", "1.13.1"}}) == Lines{});
    CHECK(decided({{"torch", "2.8.0"}}) == Lines{"PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"});
    CHECK(decided({{"torch", "2.11.0+cu130"}}) == Lines{"PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync", "PYTORCH_ALLOC_CONF=backend:cudaMallocAsync"});
    CHECK(decided({{"jaxlib", "0.4.1"}}) == Lines{"XLA_PYTHON_CLIENT_PREALLOCATE=false"});
    CHECK(decided({{"jaxlib", "0.11.2"}}) == Lines{"XLA_PYTHON_CLIENT_PREALLOCATE=false", "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async"});
    CHECK(decided({{"tensorflow_cpu", "2.4.0"}}) == Lines{"TF_FORCE_GPU_ALLOW_GROWTH=true"});
    CHECK(decided({{"tensorflow", "2.20.0"}}) == Lines{"TF_FORCE_GPU_ALLOW_GROWTH=true", "TF_GPU_ALLOCATOR=cuda_malloc_async"});
    CHECK(decided({{"tensorflow_datasets", "4.9.0"}, {"torchvision", "0.26"}}) == Lines{});
    CHECK(decided({{"tinygrad", "0.14.0"}}) == Lines{"LRU=0"});
    CHECK(decided({{"cupy_cuda13x", "14.2.0"}}) == Lines{"PYTHONPATH=/site"});
    CHECK(decided({{"cupy", "8.6.0"}}) == Lines{});
}

TEST_CASE("what the user has set stands") {
    CHECK(decided({{"torch", "2.11.0"}}, {{"PYTORCH_ALLOC_CONF", "expandable_segments:True"}}) ==
          Lines{"(PYTORCH_ALLOC_CONF=expandable_segments:True)", "(PYTORCH_ALLOC_CONF=expandable_segments:True)"});
    CHECK(decided({{"torch", "2.8.0"}}, {{"PYTORCH_NO_CUDA_MEMORY_CACHING", ""}}) == Lines{"(PYTORCH_NO_CUDA_MEMORY_CACHING=)"});
    CHECK(decided({{"jaxlib", "0.11.2"}}, {{"XLA_PYTHON_CLIENT_PREALLOCATE", "true"}}) == Lines{"(XLA_PYTHON_CLIENT_PREALLOCATE=true)", "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async"});
    CHECK(decided({{"cupy", "13.0"}}, {{"PYTHONPATH", "/a:/b"}}) == Lines{"PYTHONPATH=/site:/a:/b"});
    CHECK(decided({{"cupy", "13.0"}}, {{"PYTHONPATH", "/a:/site"}}) == Lines{"PYTHONPATH=/a:/site"});
}

TEST_CASE("packages are found where Python would find them") {
    const Folder root;
    root.make("home/.local/lib/python3.11/site-packages/cupy_cuda13x-14.2.0.dist-info");
    root.make("base/lib/python3.11/site-packages/torch-2.8.0.dist-info");
    root.make("base/lib/python3/dist-packages/numpy-1.24.2-py3.11.egg-info");
    root.make("venv/lib/python3.11/site-packages/torch-2.11.0+cu130.dist-info");
    root.make("extra/tinygrad-0.14.0.dist-info");
    const std::string base = root.write("base/bin/python3", "");
    ::chmod(base.c_str(), 0755);
    std::filesystem::create_directories(root.path / "venv/bin");
    std::filesystem::create_symlink(base, root.path / "venv/bin/python3");
    const Environment environment{{"HOME", (root.path / "home").string()}, {"PYTHONPATH", (root.path / "extra").string()}, {"PATH", "/nowhere:" + (root.path / "venv/bin").string()}};

    const auto version = [&](const Python& python, const char* name) {
        for (const Distribution& d : distributions(package_folders(python, in(environment))))
            if (d.name == name) return d.version;
        return std::string();
    };
    const auto venv = python_on_path("python3", in(environment));
    REQUIRE(venv);
    CHECK(venv->invoked == (root.path / "venv/bin/python3").string());
    CHECK_FALSE(python_on_path("python9", in(environment)));

    CHECK(version(Python{base}, "torch") == "2.8.0");
    CHECK(version(Python{base}, "numpy") == "1.24.2");
    CHECK(version(Python{base}, "cupy_cuda13x") == "14.2.0");
    CHECK(version(Python{base}, "tinygrad") == "0.14.0");
    // A virtual environment sees its own packages, and the base's only if it says so.
    root.write("venv/pyvenv.cfg", "home = " + base + "\ninclude-system-site-packages = false\n");
    CHECK(version(*venv, "torch") == "2.11.0+cu130");
    CHECK(version(*venv, "numpy").empty());
    CHECK(version(*venv, "cupy_cuda13x").empty());
    root.write("venv/pyvenv.cfg", "home = " + base + "\ninclude-system-site-packages = true\n");
    CHECK(version(*venv, "torch") == "2.11.0+cu130");
    CHECK(version(*venv, "numpy") == "1.24.2");
    CHECK(version(*venv, "cupy_cuda13x") == "14.2.0");
}

TEST_CASE("this test is no Python") { CHECK_FALSE(this_python()); }
