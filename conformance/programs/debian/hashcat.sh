# package: hashcat
# kind: a password tool: kernels built from headers by macros, MD5 and SHA-256 by mask
export HOME=$PWD
crack() {
    hashcat -m "$1" -a 3 --potfile-disable --quiet --force -D 1,2 "$(printf '%s' "$3" | "$2" | cut -d' ' -f1)" '?l?l?l?l'
}
crack 0 md5sum wave
crack 1400 sha256sum cord
