#include "torsor/lab/machine.h"

#include <ATen/Parallel.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <torch/version.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "torsor/base/memory.h"

#ifndef TORSOR_VERSION
#define TORSOR_VERSION "unknown"
#endif

namespace torsor {
namespace {

std::string field_of(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, name.size(), name) != 0) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

}  // namespace

Json describe_machine() {
  Json json;
  json["processor"] = field_of("/proc/cpuinfo", "model name");
  json["cores"] = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  json["memory_bytes"] = pages > 0 && page > 0 ? Json(static_cast<std::int64_t>(pages) * page) : Json(nullptr);
  std::istringstream flags(field_of("/proc/cpuinfo", "flags"));
  Json sets = Json::array();
  for (std::string flag; flags >> flag;)
    for (const char* known : {"avx2", "avx512f", "avx512_bf16", "amx_bf16", "avx_vnni"})
      if (flag == known) sets.push_back(flag);
  json["instruction_sets"] = sets;
  utsname system{};
  json["system"] = uname(&system) == 0 ? Json(str(system.sysname, " ", system.machine)) : Json("");
  json["libtorch"] = TORCH_VERSION;
  json["torsor"] = TORSOR_VERSION;
  json["threads"] = at::get_num_threads();
  return json;
}

void reset_peak_memory() {
  hand_back_freed_memory();
  // "5" resets the high-water mark VmHWM (proc(5)).
  std::ofstream file("/proc/self/clear_refs");
  if (file) file << "5";
}

std::int64_t peak_memory() {
  std::istringstream text(field_of("/proc/self/status", "VmHWM"));
  std::int64_t kilobytes = 0;
  if (text >> kilobytes) return kilobytes * 1024;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#ifdef __APPLE__
  return usage.ru_maxrss;
#else
  return usage.ru_maxrss * 1024;
#endif
}

std::int64_t resident_memory() {
  std::istringstream text(field_of("/proc/self/status", "VmRSS"));
  std::int64_t kilobytes = 0;
  return text >> kilobytes ? kilobytes * 1024 : 0;
}

}  // namespace torsor
