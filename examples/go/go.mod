module example.com/mlcn

go 1.19
