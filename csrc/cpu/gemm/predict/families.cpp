#include "cpu/gemm/predict/families.h"

namespace fastgemm::cpu_predict {
namespace {

bool has_amx(const Units& cpu) { return cpu.amx_bf16 || cpu.amx_int8; }
bool is_amd(const Units& cpu) { return cpu.mkl_avx2; }

Family family_of_units(const Units& cpu) {
  if (has_amx(cpu)) return Family::granite_rapids;
  if (cpu.isa != Isa::avx512) return Family::zen3;
  return is_amd(cpu) ? Family::zen4 : Family::granite_rapids;
}

bool is_narrow(DType type) { return type == DType::bf16 || (is_integer(type) && element_size(type) < 4); }

// The same for a type, which has kernels of its own where there are no tiles but products of pairs and quads.
Family family_of_units(DType type, const Units& cpu) {
  const Family usual = family_of_units(cpu);
  const bool tiles = has_amx(cpu), products = cpu.dot_bf16 && cpu.vnni;
  return usual == Family::granite_rapids && is_narrow(type) && !tiles && products ? Family::without_tiles
                                                                                  : usual;
}

// Libraries have a kernel for each unit. On AMD's processors MKL uses other kernels than on Intel's.
Family family_of_library(DType type, const Units& cpu) {
  const Family usual = family_of_units(type, cpu);
  switch (type) {
    case DType::f64:
    case DType::f32:
      return is_amd(cpu) ? usual : Family::granite_rapids;
    case DType::f16:  // with AVX512-FP16 computed by MKL, otherwise by loops
      return cpu.fp16 ? Family::granite_rapids : cpu.isa == Isa::avx512 ? Family::zen4 : Family::zen3;
    case DType::bf16:  // tiles, or dot products
      return cpu.mmla_bf16 || (usual == Family::granite_rapids && !cpu.amx_bf16) ? Family::zen4 : usual;
    case DType::i8:
      return usual == Family::granite_rapids && !cpu.amx_int8 ? Family::zen4 : usual;
    default:
      return usual;
  }
}

}  // namespace

Family family_of(Row row, DType type, const Cpu& cpu) {
  return row == Row::torch ? family_of_library(type, cpu.library) : family_of_units(type, cpu);
}

bool is_measured(DType type, const Cpu& cpu) {
  const Units& all = cpu.library;
  if (cpu.isa != all.isa) return false;  // FASTGEMM_CPU_ISA
  switch (family_of_units(all)) {
    case Family::granite_rapids:
      if (cpu.l2 != 2 << 20 || all.vector_issue != 2) return false;
      return all.fp16 && (has_amx(all) || !is_narrow(type) || (all.dot_bf16 && all.vnni));
    case Family::zen4:
      return all.vector_issue == 1 && cpu.l2 == 1 << 20;
    case Family::zen3:
      return is_amd(all) && all.isa == Isa::avx2 && all.vector_issue == 2 && cpu.l2 == 512 << 10;
    case Family::without_tiles:  // a family of types, of no processor
      break;
  }
  return false;
}

}  // namespace fastgemm::cpu_predict
