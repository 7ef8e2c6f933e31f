# package: gegl
# kind: a photo tool: filters of GEGL; the picture is as the processor's own code makes it, but for rounding
export HOME=$PWD
ffmpeg -v error -f lavfi -i testsrc=size=320x240:rate=1:duration=1 -frames:v 1 -y in.png
filter() {
    GEGL_USE_OPENCL=$1 gegl in.png -o "$2" -- gaussian-blur std-dev-x=3 std-dev-y=3 brightness-contrast contrast=1.2
}
filter cpu device.png
filter no host.png
ffmpeg -i device.png -i host.png -lavfi psnr -f null - 2>&1 | grep -o 'average:[0-9inf]*' |
    awk -F: '{ print ($2 == "inf" || $2 > 45) ? "the same picture" : "another picture: " $2 }'
