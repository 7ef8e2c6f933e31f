# package: libviennacl-dev
# kind: a solver library: sparse conjugate gradients and dense products, compiled here
cat >solve.cpp <<'EOF'
#define VIENNACL_WITH_OPENCL 1
#include "viennacl/compressed_matrix.hpp"
#include "viennacl/linalg/cg.hpp"
#include "viennacl/linalg/norm_2.hpp"
#include "viennacl/linalg/prod.hpp"
#include "viennacl/matrix.hpp"
#include "viennacl/vector.hpp"
#include <cstdio>
#include <map>
#include <vector>
int main()
{
    const int n = 2000;
    std::vector<std::map<unsigned, float>> rows(n);
    for (int i = 0; i < n; i++) {
        rows[i][i] = 4;
        if (i > 0) rows[i][i - 1] = -1;
        if (i < n - 1) rows[i][i + 1] = -1;
    }
    viennacl::compressed_matrix<float> a(n, n);
    viennacl::copy(rows, a);
    std::vector<float> host(n, 1.f);
    viennacl::vector<float> b(n);
    viennacl::copy(host, b);
    viennacl::linalg::cg_tag tag(1e-6, 200);
    viennacl::vector<float> x = viennacl::linalg::solve(a, b, tag);
    viennacl::copy(x, host);
    std::printf("%u iterations, %.5f %.5f\n", tag.iters(), host[0], host[n / 2]);
    viennacl::matrix<float> m = viennacl::scalar_matrix<float>(64, 64, 2.f);
    viennacl::matrix<float> p = viennacl::linalg::prod(m, m);
    const float one = p(5, 7);
    std::printf("%.3f\n", one);
}
EOF
c++ -std=c++14 -O1 -w -DCL_TARGET_OPENCL_VERSION=120 solve.cpp -o solve -lOpenCL && ./solve
