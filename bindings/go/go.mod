module example.com/dlease

go 1.24
