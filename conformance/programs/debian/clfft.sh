# package: clfft-client
# kind: a user of an FFT library: complex transforms of several shapes, checked by the program itself
for shape in '-x 64 -y 32' '-x 243' '-x 16 -y 16 -z 8' '-x 128 --double'; do
    clFFT-client -a $shape -p 1 | grep -o 'Internal Client Test.*'
done
