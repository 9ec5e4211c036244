// A source: X are packed weights. Their codes come to shared memory as they lie in units, and become
// fragments of wgmma's left operand in registers, with their scales applied. Contract: as BoxSource
// (parts/wgmma_kernel.cuh); a stage has 64 columns, half a unit, of 128 rows:
//
//   [ codes of 64 rows | codes of the next 64 | their scales and zeros, twice kTailBytes | 64 columns of Y ]
//
// Zeros are subtracted from codes, and scales multiply the differences, both in T: the first is exact, so a
// weight is rounded to T once, as dequantizing it would. So sums need no registers beside those of the tile,
// which can be 256 columns wide, and each code is converted for 256 products.
#pragma once

#include "cuda/gemm/packed/fragments.cuh"
#include "cuda/gemm/packed/unit_scales.cuh"
#include "cuda/gemm/parts/main_loop.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The kernel's arguments that describe the weight. Made on the host.
struct TileWeight {
  PackedWeight weight;
  UnitScales scales;
  const unsigned char* units;
  int unit_bytes, row_units, column_units;
  int scale_bytes, zero_bytes, zeros_at;  // of half a unit
  bool halves;                            // each half of a unit has groups of its own
  bool direct;                            // scales have the type of x, one for each row
  const void* bias;  // one number a row of the weight, of the type of the result; may be null

  // The most bytes of scales and zeros in half a unit. packed_tiles rejects weights with more (rules.h).
  static constexpr int kTailBytes = 512;
};

template <class T, Code code, int COLUMNS>
struct TileSource {
  using Y = OperandTile<T, Major::k, COLUMNS>;
  using Sum = float;
  static constexpr int kSums = COLUMNS / 2;                                  // of a thread
  static constexpr int kCodeBytes = packed::kRows * 64 * bits_of(code) / 8;  // of 64 rows
  static constexpr int kTailsAt = 2 * kCodeBytes;
  static constexpr int kXBytes = (kTailsAt + 2 * TileWeight::kTailBytes + 1023) / 1024 * 1024;
  static constexpr int kStageBytes = kXBytes + Y::kBytes;

  // Asks for stages, in the elected thread.
  template <int STAGES, int STAGE_BYTES>
  class Producer {
   public:
    __device__ __forceinline__ Producer(unsigned char* stages, RingBarriers<STAGES>& ring, const TensorMap& y,
                                        const TileWeight& w)
        : stages_(stages), ring_(ring), y_(y), w_(w) {}

    // Rows beyond the weight are not stored, so any unit will do for them.
    __device__ __forceinline__ void fill(const StageOrigin& from, int begin, int end, bool elected) {
      const int row = from.x / packed::kRows;
      const int64_t apart = row + 1 < w_.row_units ? int64_t{w_.column_units} * w_.unit_bytes : 0;
      const unsigned char* first = w_.units + (int64_t(row) * w_.column_units + begin / 2) * w_.unit_bytes;
      const int bytes = 2 * (kCodeBytes + w_.scale_bytes + w_.zero_bytes) + Y::kBytes;
      FASTGEMM_NO_UNROLL
      for (int step = begin; step < end; ++step) {
        const int half = step % 2;
        fill_next(elected, bytes, [&](unsigned char* to, Barrier* full) {
          load_unit(to, 0, first, half, full);
          load_unit(to, 1, first + apart, half, full);
          Y::load(to + kXBytes, &y_, full, from.y, step * Y::kK, 0);
        });
        if (half) first += w_.unit_bytes;
      }
    }
    template <class Load>
    __device__ __forceinline__ void fill_next(bool elected, int bytes, Load&& load) {
      ring_.fill(at_, elected, bytes,
                 [&](int stage, Barrier* full) { load(stages_ + stage * STAGE_BYTES, full); });
    }

   private:
    // Half a unit: its codes, and the scales and zeros that they need.
    __device__ __forceinline__ void load_unit(unsigned char* to, int i, const unsigned char* unit, int half,
                                              Barrier* full) {
      load_bytes(to + i * kCodeBytes, unit + half * kCodeBytes, kCodeBytes, full);
      unsigned char* const tail = to + kTailsAt + i * TileWeight::kTailBytes;
      const int tail_half = w_.halves ? half : 0;
      if (w_.scale_bytes > 0)
        load_bytes(tail, unit + w_.scales.at + tail_half * w_.scale_bytes, w_.scale_bytes, full);
      if (w_.zero_bytes > 0)
        load_bytes(tail + w_.zeros_at, unit + w_.scales.zeros_at + tail_half * w_.zero_bytes, w_.zero_bytes,
                   full);
    }

    unsigned char* stages_;
    RingBarriers<STAGES>& ring_;
    const TensorMap& y_;
    const TileWeight& w_;
    RingPosition<STAGES> at_{0, 1};  // a new stage counts as empty
  };

  // As RegisterOperand (parts/wgmma_consumer.cuh): two sets of registers hold half a stage each, and one is
  // converted while the other is multiplied.
  class Products {
   public:
    using Rows = InOrder;

    __device__ __forceinline__ Products(const unsigned char* stage, int warp, const TileWeight& w)
        : w_(w),
          codes_(stage + warp / 4 * kCodeBytes + int(threadIdx.x) % 128 * 16),
          tail_(stage + kTailsAt + warp / 4 * TileWeight::kTailBytes),
          y_(Y::descriptor(stage + kXBytes)) {}

    template <int R, class Meanwhile, class Done>
    __device__ __forceinline__ void multiply(float (&sum)[R], int bytes, bool accumulate,
                                             Meanwhile&& meanwhile, Done&& before_done) {
      multiply_half<0>(sum, bytes, accumulate);
      wgmma_wait<1>();
      __syncwarp();  // all lanes have read the stage before
      before_done();
      multiply_half<1>(sum, bytes, true);
      meanwhile();
      wgmma_wait<1>();
    }

   private:
    static constexpr int kHalf = 2;  // instructions in half a stage

    template <int half, int R>
    __device__ __forceinline__ void multiply_half(float (&sum)[R], int bytes, bool accumulate) {
      uint32_t(&a)[kHalf][4] = a_[half];
      if (bits_of(code) == 8 || half == 0) {
        const auto words = load_vector<Unit>(codes_ + bytes + (bits_of(code) == 8 ? half * 2048 : 0));
        FASTGEMM_UNROLL
        for (int i = 0; i < 4; ++i) words_[i] = words[i];
      }
      Pairs pairs;
      if (!w_.scales.by_rows) pairs = read_pairs(tail_ + bytes, half * kHalf);
      FASTGEMM_UNROLL
      for (int i = 0; i < kHalf; ++i) {
        constexpr int kFirst = bits_of(code) == 4 ? half * kHalf : 0;
        decode_step<T, code>(a[i], words_ + (kFirst + i) * kStepWords<code>);
        if (w_.scales.by_rows) continue;
        if (i > 0 && w_.scales.log_steps == 0) pairs = read_pairs(tail_ + bytes, half * kHalf + i);
        scale(a[i], pairs);
      }
      wgmma_fence(sum, a[0], a[1]);
      FASTGEMM_UNROLL
      for (int i = 0; i < kHalf; ++i)
        wgmma<T>(sum, a[i], y_.at(bytes + Y::step(half * kHalf + i)), accumulate || i > 0);
      wgmma_commit();
    }

    // The scales and zeros of this thread's rows for k16 step `step` of the stage, each twice in a register.
    struct Pairs {
      uint32_t scale[2], zero[2];
    };
    __device__ __forceinline__ Pairs read_pairs(const unsigned char* tail, int step) const {
      const int i = w_.scales.index(UnitScales::rows_of(threadIdx.x % 128), step);
      Pairs pairs;
      if (w_.direct) {
        const auto two = load_vector<uint32_t>(tail + 2 * i);
        pairs.scale[0] = __byte_perm(two, 0, 0x1010), pairs.scale[1] = __byte_perm(two, 0, 0x3232);
      } else {
        FASTGEMM_UNROLL
        for (int row = 0; row < 2; ++row) pairs.scale[row] = pair_of_byte(tail[i + row * w_.scales.apart()]);
      }
      if (w_.zero_bytes > 0) {
        FASTGEMM_UNROLL
        for (int row = 0; row < 2; ++row)
          pairs.zero[row] = pair_of<T>(float(int8_t(tail[w_.zeros_at + i + row * w_.scales.apart()])));
      }
      return pairs;
    }
    // Reads a scale of 8 bits, e4m3 or e8m0; it is exact in T.
    __device__ __forceinline__ uint32_t pair_of_byte(uint32_t x) const {
      if (w_.weight.scale == ScaleType::e8m0)
        return (x == 255 ? 0x7fc0u : x == 0 ? 0x40u : x << 7) * 0x10001u;
      const float value = widen(Half{uint16_t((x & 128) << 8 | (x & 127) << 7)}) * 256.0f;
      return (x & 127) == 127 ? 0x7fff7fffu : pair_of<T>(value);
    }
    __device__ __forceinline__ void scale(uint32_t (&a)[4], const Pairs& pairs) const {
      if (w_.zero_bytes > 0) subtract_zeros<T>(a, pairs.zero);
      FASTGEMM_UNROLL
      for (int p = 0; p < 4; ++p) a[p] = multiply_pairs<T>(a[p], pairs.scale[p % 2]);
    }

    const TileWeight& w_;
    const unsigned char *codes_, *tail_;
    MatrixDescriptor y_;
    uint32_t words_[4];
    uint32_t a_[2][kHalf][4];
  };
};

}  // namespace fastgemm::FASTGEMM_TARGET
