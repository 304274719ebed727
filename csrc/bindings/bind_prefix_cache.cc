#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "kv/paged_radix_tree.h"
#include "kv/prefix_cache.h"

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(build/namespaces)

namespace mlc_native::bindings {
namespace {

constexpr int64_t kDefaultCapacity = 1 << 20;  // tokens

nb::tuple Match(PagedRadixTree& self, const std::vector<int64_t>& tokens) {
  const PagedRadixTree::Match match = self.MatchPrefix(CheckedTokenIds("tokens", tokens));
  return nb::make_tuple(match.length, nb::tuple(nb::cast(match.seq_ids)));
}

}  // namespace

void BindPrefixCache(nb::module_& m) {
  nb::class_<PinnedPrefix>(m, "PinnedPrefix", "A prompt that the prefix cache never evicts.")
      .def_ro("id", &PinnedPrefix::id)
      .def_ro("num_tokens", &PinnedPrefix::num_tokens)
      .def_ro("num_pages", &PinnedPrefix::num_pages, "Pages, some maybe shared with other pins.")
      .def_ro("owner", &PinnedPrefix::owner,
              "The id of the request that pinned it; empty if the host did (pin_prefix).")
      .def("__repr__", [](const PinnedPrefix& self) {
        return nb::str("PinnedPrefix(id={}, num_tokens={}, num_pages={}, owner={!r})")
            .format(self.id, self.num_tokens, self.num_pages, self.owner);
      });
  nb::class_<PagedRadixTree>(
      m, "PagedRadixTree",
      "Token sequences by id that store their common prefixes once.\n\n"
      "Unknown or used ids, lengths out of range and more tokens than the free capacity raise\n"
      "InvalidRequest and change nothing. One thread at a time.")
      .def(nb::init<int64_t>(), "capacity"_a = kDefaultCapacity, "capacity: tokens stored at most.")
      .def("match", &Match, "tokens"_a, nb::lock_self(),
           "The length of the longest prefix of the tokens that a sequence begins with, and the "
           "ids of all sequences that do (none for length 0).")
      .def("add", &PagedRadixTree::Add, "seq_id"_a, nb::lock_self(), "Adds an empty sequence.")
      .def("remove", &PagedRadixTree::Remove, "seq_id"_a, nb::lock_self())
      .def(
          "extend",
          [](PagedRadixTree& self, int64_t seq_id, const std::vector<int64_t>& tokens) {
            self.Extend(seq_id, CheckedTokenIds("tokens", tokens));
          },
          "seq_id"_a, "tokens"_a, nb::lock_self(), "Appends tokens.")
      .def("rollback", &PagedRadixTree::Rollback, "seq_id"_a, "num_tokens"_a, nb::lock_self(),
           "Drops the last num_tokens tokens.")
      .def("fork", &PagedRadixTree::Fork, "seq_id"_a, "parent_seq_id"_a, "forked_offset"_a,
           nb::lock_self(), "Adds a sequence with the first forked_offset tokens of the parent.")
      .def("get", &PagedRadixTree::Get, "seq_id"_a, nb::lock_self())
      .def("get_length", &PagedRadixTree::GetLength, "seq_id"_a, nb::lock_self())
      .def("free_capacity", &PagedRadixTree::FreeCapacity, nb::lock_self(),
           "Tokens that may still be added.");
}

}  // namespace mlc_native::bindings
