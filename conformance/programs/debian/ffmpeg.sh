# package: ffmpeg
# kind: a video filter: frames through images on the device, their checksums
frames() {
    ffmpeg -v error -init_hw_device opencl=ocl -filter_hw_device ocl -f lavfi -i testsrc=size=320x240:rate=5:duration=1 \
        -vf "$1" -f framemd5 -
}
frames 'format=yuv420p,hwupload,avgblur_opencl=sizeX=3,unsharp_opencl,hwdownload,format=yuv420p'
frames 'format=yuv420p,hwupload,transpose_opencl=dir=clock,hwdownload,format=yuv420p'
frames 'format=rgba,hwupload,convolution_opencl=0m=0 -1 0 -1 5 -1 0 -1 0,hwdownload,format=rgba'
