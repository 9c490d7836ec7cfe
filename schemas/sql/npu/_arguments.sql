-- Private: how the package reads arguments. The key is written out ('debug.task'): putting it together here would cost
-- a concatenation per row. The casts are there because a table whose column changes type is refused as a whole.

CREATE OR REPLACE PERFETTO MACRO _npu_int(arg_set_id Expr, key Expr)
RETURNS Expr AS
CAST(EXTRACT_ARG($arg_set_id, $key) AS INT);

CREATE OR REPLACE PERFETTO MACRO _npu_real(arg_set_id Expr, key Expr)
RETURNS Expr AS
CAST(EXTRACT_ARG($arg_set_id, $key) AS REAL);

CREATE OR REPLACE PERFETTO MACRO _npu_text(arg_set_id Expr, key Expr)
RETURNS Expr AS
CAST(EXTRACT_ARG($arg_set_id, $key) AS TEXT);
