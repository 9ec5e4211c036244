#include "simt/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>
#include <unordered_map>

namespace fastgemm::simt::symbols {
namespace {

struct Object {
  std::string path;
  uintptr_t base = 0, end = 0;
};

// Calls visit(info) for the loaded object that contains this function.
template <class Visit>
void visit_own_object(const Visit& visit) {
  struct Search {
    const Visit* visit;
    uintptr_t inside;
  } search{&visit, reinterpret_cast<uintptr_t>(&shared_variables)};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* p) {
        const auto& s = *static_cast<Search*>(p);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          if (segment.p_type != PT_LOAD || s.inside - info->dlpi_addr - segment.p_vaddr >= segment.p_memsz)
            continue;
          (*s.visit)(*info);
          return 1;
        }
        return 0;
      },
      &search);
}

const Object& object() {
  static const Object own = [] {
    Object o;
    visit_own_object([&](const dl_phdr_info& info) {
      o = {info.dlpi_name, info.dlpi_addr, info.dlpi_addr};
      for (int i = 0; i < info.dlpi_phnum; ++i)
        if (const auto& s = info.dlpi_phdr[i]; s.p_type == PT_LOAD)
          o.end = std::max<uintptr_t>(o.end, o.base + s.p_vaddr + s.p_memsz);
    });
    if (o.path.empty()) o.path = "/proc/self/exe";  // the main program
    char real[4096];
    if (const ssize_t n = readlink(o.path.c_str(), real, sizeof(real)); n > 0) o.path.assign(real, size_t(n));
    return o;
  }();
  return own;
}

// Reads the symbol table of an ELF file.
std::vector<Variable> read_shared_variables(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string elf{std::istreambuf_iterator<char>(file), {}};
  std::vector<Variable> variables;
  if (elf.size() < sizeof(Elf64_Ehdr)) return variables;
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(elf.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(elf.data() + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const char* names = elf.data() + sections[sections[i].sh_link].sh_offset;
    const auto* symbol = reinterpret_cast<const Elf64_Sym*>(elf.data() + sections[i].sh_offset);
    for (size_t left = sections[i].sh_size / sizeof(Elf64_Sym); left > 0; --left, ++symbol) {
      const std::string_view name = names + symbol->st_name;
      // Keep only variables inside of functions of namespace fastgemm::simt.
      if (ELF64_ST_TYPE(symbol->st_info) != STT_TLS || !name.starts_with("_ZZN8fastgemm4simt")) continue;
      if (name.find("red_zone_") != name.npos) continue;  // of __shared__, platform.h
      variables.push_back({demangled(names + symbol->st_name), symbol->st_value, symbol->st_size});
    }
  }
  return variables;
}

std::string run(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string output;
  char part[4096];
  for (size_t n; pipe && (n = fread(part, 1, sizeof(part), pipe.get())) > 0;) output.append(part, n);
  return output;
}

}  // namespace

const std::string& path() { return object().path; }
uintptr_t base() { return object().base; }
bool in_image(uintptr_t address) { return address >= object().base && address < object().end; }

std::string source_line(uint32_t pc) {
  static std::unordered_map<uint32_t, std::string> known;
  std::string& line = known[pc];
  if (!line.empty()) return line;
  char address[32];
  snprintf(address, sizeof(address), "0x%x", pc - 1);
  std::string frames = run("addr2line -i -e '" + path() + "' " + address + " 2>/dev/null");
  while (!frames.empty()) {
    std::string frame = frames.substr(0, frames.find('\n'));
    frames.erase(0, frame.size() + 1);
    if (frame.starts_with("??") || frame.find("/cuda/device/") != std::string::npos ||
        frame.find("/csrc/simt/") != std::string::npos || frame.find("/include/c++/") != std::string::npos)
      continue;
    if (const size_t root = frame.rfind("csrc/cuda/"); root != std::string::npos) frame.erase(0, root);
    return line = frame.substr(0, frame.find(" ("));
  }
  return line = address;
}

std::string demangled(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 ? text.get() : mangled;
}

const std::vector<Variable>& shared_variables() {
  static const std::vector<Variable> all = [] {
    std::vector<Variable> v = read_shared_variables(path());
    std::ranges::sort(v, {}, &Variable::offset);
    return v;
  }();
  return all;
}

Segment thread_segment() {
  Segment segment;
  visit_own_object([&](const dl_phdr_info& info) {
    segment.begin = reinterpret_cast<uintptr_t>(info.dlpi_tls_data);
    for (int i = 0; i < info.dlpi_phnum; ++i)
      if (info.dlpi_phdr[i].p_type == PT_TLS) segment.bytes = info.dlpi_phdr[i].p_memsz;
  });
  return segment;
}

}  // namespace fastgemm::simt::symbols
