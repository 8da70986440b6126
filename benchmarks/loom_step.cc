/* The row step of loom's sampler, on the C++ library `distributions` 2.2.1 that loom itself calls for it.
 *
 * Between two sweeps nothing is done: loom's inference of hyperparameters and of views, its reading of rows and its
 * protobuf messages are left out, and so are its "tares" (levels that most rows have, stored once). What is here is
 * what loom does with one row, in its order and with its caches:
 *
 *     take the row out of the clustering and of every feature; a group that it leaves empty is dropped everywhere
 *     score all groups and the one that is kept empty: clustering, then every feature adds to the scores
 *     draw a group and put the row into it; where that was the empty one, add another
 *
 * Features stand type by type: up to two levels are BetaBernoulli, to 16 DirichletDiscrete<16>, to 256
 * DirichletDiscrete<256>. Groups are packed, and the number of a row's group in all of time is looked up. The first
 * sweep puts the rows in one after another, from no groups at all, as loom starts.
 *
 * peer_program.py builds a shared library of it and calls the three functions at the end.
 */
#include <algorithm>

#include <distributions/clustering.hpp>
#include <distributions/mixture.hpp>
#include <distributions/models/bb.hpp>
#include <distributions/models/dd.hpp>

using namespace distributions;
typedef DirichletDiscrete<16> Few;
typedef DirichletDiscrete<256> Many;

template <class Model>
struct Feature {
    typename Model::Shared shared;
    typename Model::FastMixture mixture;
};

struct Sampler {
    size_t rows, columns;
    const uint8_t *x; /* (rows, columns), columns type by type; the caller's */
    Clustering<int>::PitmanYor prior;
    Clustering<int>::PitmanYor::Mixture clustering;
    std::vector<Feature<BetaBernoulli>> two;
    std::vector<Feature<Few>> few;
    std::vector<Feature<Many>> many;
    MixtureIdTracker numbers;
    std::vector<uint32_t> z; /* group of each row that is in: its number in all of time */
    VectorFloat scores;
    rng_t rng;

    /* work(shared, mixture, column) of every feature */
    template <class Work>
    void each(Work work) {
        size_t column = 0;
        for (auto &f : two) work(f.shared, f.mixture, column++);
        for (auto &f : few) work(f.shared, f.mixture, column++);
        for (auto &f : many) work(f.shared, f.mixture, column++);
    }

    void take_out(const uint8_t *row, size_t group) {
        const bool emptied = clustering.remove_value(prior, group);
        each([&](auto &shared, auto &mixture, size_t c) { mixture.remove_value(shared, group, row[c], rng); });
        if (emptied) {
            each([&](auto &shared, auto &mixture, size_t) { mixture.remove_group(shared, group); });
            numbers.remove_group(group);
        }
    }

    void score(const uint8_t *row) {
        scores.resize(clustering.counts().size());
        clustering.score_value(prior, scores);
        each([&](auto &shared, auto &mixture, size_t c) { mixture.score_value(shared, row[c], scores, rng); });
    }

    void put_in(const uint8_t *row, size_t group) {
        const bool taken = clustering.add_value(prior, group);
        each([&](auto &shared, auto &mixture, size_t c) { mixture.add_value(shared, group, row[c], rng); });
        if (taken) {
            each([&](auto &shared, auto &mixture, size_t) { mixture.add_group(shared, rng); });
            numbers.add_group();
        }
    }

    void sweep() {
        const bool all_in = z.size() == rows;
        for (size_t i = 0; i < rows; ++i) {
            const uint8_t *row = x + i * columns;
            if (all_in) take_out(row, numbers.global_to_packed(z[i]));
            score(row);
            const size_t group = sample_from_scores_overwrite(rng, scores);
            put_in(row, group);
            if (!all_in) z.push_back(0);
            z[i] = numbers.packed_to_global(group);
        }
    }
};

extern "C" {

/* Columns of x and levels stand type by type; hyperparameters: alpha, d of Pitman-Yor, prior of every level. */
Sampler *step_new(int64_t rows, int64_t columns, const uint8_t *x, const int32_t *levels, float alpha, float d,
                  float prior, int64_t seed) {
    Sampler *s = new Sampler();
    s->rows = rows, s->columns = columns, s->x = x;
    s->prior.alpha = alpha, s->prior.d = d;
    s->rng.seed(seed);
    s->two.resize(std::count_if(levels, levels + columns, [](int v) { return v <= 2; }));
    s->few.resize(std::count_if(levels, levels + columns, [](int v) { return v > 2 && v <= 16; }));
    s->many.resize(columns - s->two.size() - s->few.size());
    for (auto &f : s->two) f.shared.alpha = f.shared.beta = prior;
    const int32_t *n = levels + s->two.size();
    for (auto &f : s->few) std::fill(f.shared.alphas, f.shared.alphas + (f.shared.dim = *n++), prior);
    for (auto &f : s->many) std::fill(f.shared.alphas, f.shared.alphas + (f.shared.dim = *n++), prior);
    s->clustering.counts().assign(1, 0); /* one empty group */
    s->clustering.init(s->prior);
    s->each([&](auto &shared, auto &mixture, size_t) {
        mixture.groups().resize(1);
        mixture.groups(0).init(shared, s->rng);
        mixture.init(shared, s->rng);
    });
    s->numbers.init(1);
    s->z.reserve(rows);
    return s;
}

void step_sweep(Sampler *s) { s->sweep(); }

void step_labels(const Sampler *s, uint32_t *out) { std::copy(s->z.begin(), s->z.end(), out); }
}
