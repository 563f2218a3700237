module example.com/dlease/guardtest

go 1.24

require (
	example.com/dlease v0.0.0
	github.com/go-sql-driver/mysql v1.9.3
)

require filippo.io/edwards25519 v1.1.0 // indirect

replace example.com/dlease => ../
