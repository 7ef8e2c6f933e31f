/*
 * A program of ViennaCL's kind: solves a sparse system by conjugate gradients on the device, and checks the solution.
 *
 *     g++ -O2 viennacl_cg.cpp -o viennacl_cg -lOpenCL
 */
#define VIENNACL_WITH_OPENCL
#include "viennacl/compressed_matrix.hpp"
#include "viennacl/linalg/cg.hpp"
#include "viennacl/linalg/norm_2.hpp"
#include "viennacl/linalg/prod.hpp"
#include "viennacl/vector.hpp"

#include <cstdio>
#include <map>
#include <vector>

int main()
{
    /* The Laplacian of a square grid. */
    const unsigned side = 400, size = side * side;
    std::vector<std::map<unsigned, float>> rows(size);
    for (unsigned at = 0; at < size; ++at) {
        rows[at][at] = 4.1f;
        if (at % side > 0)
            rows[at][at - 1] = -1;
        if (at % side < side - 1)
            rows[at][at + 1] = -1;
        if (at >= side)
            rows[at][at - side] = -1;
        if (at + side < size)
            rows[at][at + side] = -1;
    }
    viennacl::compressed_matrix<float> matrix;
    viennacl::copy(rows, matrix);
    viennacl::vector<float> right = viennacl::scalar_vector<float>(size, 1.0f);
    float worst = 0;
    for (int round = 0; round < 20; ++round) {
        viennacl::linalg::cg_tag settings(1e-5, 300);
        viennacl::vector<float> found = viennacl::linalg::solve(matrix, right, settings);
        viennacl::vector<float> rest = viennacl::linalg::prod(matrix, found);
        rest -= right;
        const float error = viennacl::linalg::norm_2(rest) / viennacl::linalg::norm_2(right);
        worst = error > worst ? error : worst;
    }
    std::printf("%g\n", worst);
    return worst < 1e-3f ? 0 : 1;
}
