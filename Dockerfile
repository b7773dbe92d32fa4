# An image with accel-migrate, accel, the library, and the LibTorch that it was
# built with:
#
#   docker build -t accel .
#   docker run --rm -v "$PWD:/src" -w /src accel accel-migrate train.cpp

FROM debian:12 AS build
COPY . /accel
WORKDIR /accel
ARG SOURCE_DATE_EPOCH=0
RUN scripts/setup && apt-get install -y --no-install-recommends lld-19 libzstd-dev zlib1g-dev && \
    SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH scripts/package --out /packages deb

FROM debian:12
COPY --from=build /packages /packages
COPY --from=build /accel/.deps/libtorch /opt/libtorch
RUN apt-get update && \
    apt-get install -y --no-install-recommends g++ cmake make /packages/*.deb && \
    rm -rf /packages /var/lib/apt/lists/*
ENV ACCEL_LIBTORCH=/opt/libtorch
CMD ["accel", "--help"]
