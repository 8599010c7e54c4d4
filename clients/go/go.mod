module foldlog.example/client

go 1.19
