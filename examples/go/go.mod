module example.com/dlease/examples

go 1.24

require example.com/dlease v0.0.0

replace example.com/dlease => ../../bindings/go
