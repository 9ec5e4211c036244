// Blocks of a cluster: their common barrier, and access to each other's shared memory while they run.
#include "simt/block.h"
#include "simt/memory.h"
#include "simt/order.h"
#include "simt/session.h"
#include "simt/trace.h"

namespace fastgemm::simt::runtime {

// No other block may access the shared memory of a block that has ended.
void Block::end_block(int rank) {
  const auto begin = static_cast<const std::byte*>(shared(rank));
  for (const Load& load : in_flight_)
    if (load.to >= begin && load.to < begin + shared_bytes_)
      report_and_stop("in flight", "the block ended while loads into its shared memory were under way",
                      {trace::pc_of(load.site)});
  if (Region* r = memory::find(reinterpret_cast<uintptr_t>(begin))) order::end_block(*r, rank);
}

void Block::arrive_at_cluster(const void* site) {
  Thread& t = current();
  if (t.arrived)
    report_and_stop("arrivals", "a thread arrives again at the cluster's barrier before it waits there",
                    {trace::pc_of(site)});
  t.arrived = true, t.cluster_phase = cluster_phase_;
  order::arrive(&cluster_phase_);
  ++cluster_arrivals_;
  complete_cluster_barrier();
}

void Block::complete_cluster_barrier() {
  if (cluster_arrivals_ == 0 || cluster_arrivals_ + excused_ < int(threads_.size())) return;
  order::complete_phase(&cluster_phase_);
  ++cluster_phase_, cluster_arrivals_ = 0, excused_ = returned_;
}

void Block::wait_for_cluster(const void* site) {
  Thread& t = current();
  if (!t.arrived)
    report_and_stop("arrivals", "a thread waits at the cluster's barrier where it has not arrived",
                    {trace::pc_of(site)});
  const uint64_t phase = t.cluster_phase;
  runtime::wait_until("the cluster's barrier", [&] { return cluster_phase_ != phase; }, site);
  t.arrived = false;
  order::acquire(&cluster_phase_);
}

}  // namespace fastgemm::simt::runtime
