#include "distributed/mpi/ordered_sum.hpp"

#include <algorithm>
#include <span>

#include "nn/elements.hpp"

namespace heed::distributed {
namespace {

// Numbers per message: while a rank adds to one part, the rank before it adds to the next.
constexpr std::size_t kPart = 1 << 18;

template <class T>
int bytes_of(std::span<T> part) {
  return static_cast<int>(part.size_bytes());
}

// Receives a sum from the previous rank, adds this rank's terms, and sends it to the next.
template <class T>
void add_part(const Communicator& comm, std::span<T> sum, const std::vector<const T*>& terms) {
  if (comm.rank() > 0)
    check(MPI_Recv(sum.data(), bytes_of(sum), MPI_BYTE, comm.rank() - 1, 0, comm.get(), MPI_STATUS_IGNORE),
          "MPI_Recv");
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (comm.rank() == 0 && i == 0)
      std::copy_n(terms[i], sum.size(), sum.begin());
    else
      std::transform(sum.begin(), sum.end(), terms[i], sum.begin(), [](T a, T b) { return a + b; });
  }
  if (comm.rank() + 1 < comm.size())
    check(MPI_Send(sum.data(), bytes_of(sum), MPI_BYTE, comm.rank() + 1, 0, comm.get()), "MPI_Send");
}

// Calls body(part, begin of the part).
template <class T, class Body>
void for_each_part(std::span<T> all, Body body) {
  for (std::size_t begin = 0; begin < all.size(); begin += kPart)
    body(all.subspan(begin, std::min(kPart, all.size() - begin)), begin);
}

template <class T>
void add_all(const Communicator& comm, std::span<T> sum, const std::vector<const T*>& terms) {
  for_each_part(sum, [&](std::span<T> part, std::size_t begin) {
    std::vector<const T*> of_part(terms);
    for (const T*& term : of_part) term += begin;
    add_part<T>(comm, part, of_part);
  });
}

template <class T>
void take_from_last(const Communicator& comm, std::span<T> sum) {
  for_each_part(sum, [&](std::span<T> part, std::size_t) {
    check(MPI_Bcast(part.data(), bytes_of(part), MPI_BYTE, comm.size() - 1, comm.get()), "MPI_Bcast");
  });
}

}  // namespace

double add_in_order(const Communicator& comm, std::vector<nn::LossPiece>& pieces,
                    nn::LanguageModel& gradients) {
  double loss = 0;
  std::vector<const double*> losses;
  for (const nn::LossPiece& piece : pieces) losses.push_back(&piece.loss);
  add_all<double>(comm, {&loss, 1}, losses);
  std::vector<std::vector<nn::NamedParameter>> terms;
  for (nn::LossPiece& piece : pieces) terms.push_back(piece.gradients.parameters());
  const std::vector<nn::NamedParameter> sums = gradients.parameters();
  const auto for_each_sum = [&](auto body) {
    for (std::size_t i = 0; i < sums.size(); ++i)
      nn::detail::with_real(sums[i].value->dtype(), [&]<class T>(T) { body(i, sums[i].value->values<T>()); });
  };
  for_each_sum([&]<class T>(std::size_t i, std::span<T> sum) {
    std::vector<const T*> of_pieces;
    for (const auto& piece : terms) of_pieces.push_back(piece[i].value->template values<T>().data());
    add_all<T>(comm, sum, of_pieces);
  });
  take_from_last<double>(comm, {&loss, 1});
  for_each_sum([&]<class T>(std::size_t, std::span<T> sum) { take_from_last<T>(comm, sum); });
  return loss;
}

}  // namespace heed::distributed
