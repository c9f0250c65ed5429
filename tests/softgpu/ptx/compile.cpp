// See compile.hpp. The options keep IEEE results exactly as the text asks for: no contraction, no
// re-association; integers wrap. The compiler runs without LD_PRELOAD: it is no part of the program.
#include "tests/softgpu/ptx/compile.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

extern char** environ;

namespace softgpu::ptx {
namespace {

constexpr const char* options[] = {"-O2", "-std=gnu11", "-shared", "-fPIC", "-w", "-fvisibility=hidden", "-fno-strict-aliasing", "-fwrapv",
                                   "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-stack-protector", "-fno-plt", "-fcf-protection=none",
                                   "-fno-asynchronous-unwind-tables"};

// The processor to compile for: this one, or SOFTGPU_MARCH (a tool that runs the program may know fewer instructions).
std::string target() {
    const char* wanted = getenv("SOFTGPU_MARCH");
    return std::string("-march=") + (wanted && *wanted ? wanted : "native");
}

std::string find_compiler() {
    const char* path = getenv("PATH");
    std::string list = path && *path ? path : "/usr/local/bin:/usr/bin:/bin";
    for (const char* name : {"gcc", "cc"}) {
        for (std::size_t at = 0; at <= list.size();) {
            std::size_t end = list.find(':', at);
            if (end == std::string::npos) end = list.size();
            const std::string file = list.substr(at, end - at) + "/" + name;
            if (end > at && access(file.c_str(), X_OK) == 0) return file;
            at = end + 1;
        }
    }
    return {};
}

// Compiler (path, size, time) and processor: what the machine code depends on besides the text.
const std::string& environment_key(const std::string& compiler) {
    static const auto& key = *new std::string([&] {  // kernels run in static destructors too
        std::string k = compiler;
        struct stat s {};
        if (stat(compiler.c_str(), &s) == 0) k += " " + std::to_string(s.st_size) + " " + std::to_string(s.st_mtime);
        std::ifstream cpu("/proc/cpuinfo");
        for (std::string line; std::getline(cpu, line) && !line.empty();)
            if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0 || line.rfind("model", 0) == 0) k += line;
        for (const char* o : options) k += o;
        k += target();
        return k;
    }());
    return key;
}

void make_folders(const std::string& folder) {
    for (std::size_t at = 1; at <= folder.size(); ++at)
        if (at == folder.size() || folder[at] == '/') mkdir(folder.substr(0, at).c_str(), 0777);
}

// Runs the compiler; its messages come back on failure.
std::string run_compiler(const std::string& compiler, const std::string& source, const std::string& output) {
    std::vector<std::string> words{compiler, target()};
    for (const char* o : options) words.emplace_back(o);
    for (const char* w : {"-o"}) words.emplace_back(w);
    words.push_back(output);
    words.push_back(source);
    words.emplace_back("-lm");
    std::vector<char*> arguments, environment;
    for (std::string& w : words) arguments.push_back(w.data());
    arguments.push_back(nullptr);
    for (char** e = environ; *e; ++e)
        if (std::strncmp(*e, "LD_PRELOAD=", 11) != 0) environment.push_back(*e);
    environment.push_back(nullptr);
    const std::string log = output + ".log";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    // The thread that runs kernels may block signals; the compiler wants none blocked.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t child = 0;
    const int error = posix_spawn(&child, compiler.c_str(), &actions, &attributes, arguments.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    std::string failure;
    if (error) {
        failure = "cannot start " + compiler + ": " + std::strerror(error);
    } else {
        int status = 0;
        pid_t waited;
        do waited = waitpid(child, &status, 0);
        while (waited < 0 && errno == EINTR);
        // The program may have reaped our child (ECHILD): then the output tells.
        if (waited == child && status != 0) failure = "the compiler failed";
        if (failure.empty() && access(output.c_str(), R_OK) != 0) failure = "the compiler made no output";
        if (!failure.empty()) {
            std::ifstream messages(log);
            for (std::string line; std::getline(messages, line);)
                if (line.find("error") != std::string::npos) { failure += ": " + line; break; }
        }
    }
    unlink(log.c_str());
    return failure;
}

}  // namespace

Object::~Object() { dlclose(handle_); }
void* Object::symbol(const char* name) const { return dlsym(handle_, name); }

tl::expected<std::shared_ptr<Object>, Error> compile(const std::string& text, const std::string& cache_folder) {
    static const auto& compiler = *new std::string(find_compiler());
    if (compiler.empty()) return tl::make_unexpected(Error{"no C compiler (gcc or cc) on PATH: the software GPU needs one to run kernels"});
    std::string folder = cache_folder;
    if (folder.empty()) {
        char name[] = "/tmp/softgpu-XXXXXX";
        if (!mkdtemp(name)) return tl::make_unexpected(Error{std::string("cannot make a folder in /tmp: ") + std::strerror(errno)});
        folder = name;
    } else {
        make_folders(folder);
    }
    XXH3_state_t* state = XXH3_createState();
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, text.data(), text.size());
    const std::string& key = environment_key(compiler);
    XXH3_128bits_update(state, key.data(), key.size());
    const XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    char name[40];
    std::snprintf(name, sizeof name, "%016llx%016llx", static_cast<unsigned long long>(hash.high64), static_cast<unsigned long long>(hash.low64));
    const std::string final_name = folder + "/" + name + ".so";
    void* handle = cache_folder.empty() ? nullptr : dlopen(final_name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle) return std::make_shared<Object>(handle);

    static std::atomic<unsigned> serial{0};
    const std::string own = folder + "/" + name + "." + std::to_string(getpid()) + "." + std::to_string(serial++);
    const std::string source = own + ".c", output = own + ".so";
    {
        std::ofstream file(source, std::ios::binary);
        file << text;
        if (!file.flush()) return tl::make_unexpected(Error{"cannot write " + source + ": " + std::strerror(errno)});
    }
    std::string failure = run_compiler(compiler, source, output);
    if (failure.empty()) {
        handle = dlopen(output.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!handle) failure = dlerror();
    }
    unlink(source.c_str());
    if (cache_folder.empty() || !failure.empty() || rename(output.c_str(), final_name.c_str()) != 0) unlink(output.c_str());
    if (cache_folder.empty()) rmdir(folder.c_str());
    if (!failure.empty()) return tl::make_unexpected(Error{failure});
    return std::make_shared<Object>(handle);
}

}  // namespace softgpu::ptx
